//! Tests of the command line: its subcommands, its help, and what it refuses.

use super::*;

fn read<const N: usize>(line: [&str; N]) -> Result<Invocation, Error> {
    parse(&Program::default(), line)
}

#[test]
fn the_grammar_is_sound() {
    let grammar = Program::default().grammar(None);
    grammar.debug_assert();
}

#[test]
fn help_names_variables_beside_flags_and_every_setting_with_its_default() {
    let short = read(["b", "-h"]).unwrap_err().to_string();
    for expected in ["Agent Server", "config", "--port", "(PORT)"] {
        assert!(short.contains(expected), "{expected} is not in:\n{short}");
    }
    let long = read(["b", "--help"]).unwrap_err().to_string();
    for expected in [
        "OPENAI_MODEL (openai_model)",
        "[unset]",
        "BACKSTITCH_MEMORY (memory)",
        "BACKSTITCH_CONFIG",
        "PORT (port)\n      port to listen on; 0 picks a free one [2024]",
    ] {
        assert!(long.contains(expected), "{expected} is not in:\n{long}");
        assert!(!short.contains("OPENAI_MODEL"), "{short}");
    }
}

#[test]
fn help_and_version_are_those_of_the_author_or_of_the_file() {
    let program = Program {
        name: Some("my-agents".into()),
        version: Some("7.1".into()),
        about: Some("Agents for the harbour".into()),
        ..Program::default()
    };
    let shown = |program: &Program, flag| {
        let Err(refused) = parse(program, ["/opt/other", flag]) else {
            panic!("{flag} is for people");
        };
        refused.to_string()
    };
    assert_eq!(shown(&program, "--version"), "my-agents 7.1\n");
    assert!(shown(&program, "--help").contains("Agents for the harbour"));
    let nameless = shown(&Program::default(), "--version");
    let library = env!("CARGO_PKG_VERSION");
    assert_eq!(nameless, format!("other (backstitch {library})\n"));
}

#[test]
fn without_a_word_the_server_is_meant_and_flags_stand_on_either_side() {
    assert_eq!(read(["b"]).unwrap().command, Command::Serve);
    for line in [["b", "--port", "0", "serve"], ["b", "serve", "--port", "0"]] {
        let invocation = read(line).unwrap();
        let port = invocation.settings.map(|settings| settings.port);
        assert_eq!((invocation.command, port), (Command::Serve, Some(0)));
    }
    let config = read(["b", "config", "show"]).unwrap();
    assert_eq!(config.command, Command::ConfigShow);
    assert_eq!(read(["b", "migrate"]).unwrap().command, Command::Migrate);
    assert_eq!(read(["b", "version"]).unwrap().command, Command::Version);
}

#[test]
fn an_unknown_word_is_refused_under_the_name_that_was_typed() {
    let Err(Error::Usage(usage)) = read(["/opt/my-agent", "dance"]) else {
        panic!("`dance` is no command")
    };
    assert_eq!(usage.exit_code(), 2);
    assert!(usage.to_string().contains("my-agent"), "{usage}");
}
