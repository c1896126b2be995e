//! The SQL texts of a room, read out of its sources: the literals, and what its macros make of them.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// How a statement of SQL begins.
const VERBS: [&str; 7] = [
    "DELETE ",
    "INSERT ",
    "LOCK TABLE ",
    "SELECT ",
    "TRUNCATE ",
    "UPDATE ",
    "WITH ",
];

/// A statement and the file that has it, below the room.
#[derive(Clone, Debug)]
pub(in crate::storage) struct Found {
    pub(in crate::storage) file: String,
    pub(in crate::storage) text: String,
}

/// The number of a type of events, by the name of its constant.
fn code(name: &str) -> String {
    let codes = include_str!("../../tree/event/codes.rs");
    let arm = format!("({name}) => {{");
    let (_, rest) = codes.split_once(&arm).expect("a type of events");
    let (number, _) = rest.split_once('}').expect("its number");
    number.trim().to_owned()
}

/// A `macro_rules!` of one rule, whose parameters are literals.
struct Rule {
    /// The parameters; of the last one there may be several.
    params: Vec<String>,
    body: TokenStream,
}

/// The rules of a file by name, and its constants as rules without parameters; those of the files around it
/// count where it has none.
type Rules = HashMap<String, Rule>;

/// All statements of the sources below `folder`, but those that only tests have.
pub(in crate::storage) fn statements(folder: &str) -> Vec<Found> {
    let parsed = parsed(folder);
    let rules: HashMap<&str, Rules> = parsed
        .iter()
        .map(|(file, tokens)| (file.trim_end_matches(".rs"), rules(tokens)))
        .collect();
    let mut found = Vec::new();
    for (file, tokens) in &parsed {
        let module = file.trim_end_matches(".rs");
        let scope = Scope {
            rules: &rules,
            module,
        };
        let mut texts = Vec::new();
        scope.scan(tokens.clone(), &mut texts);
        texts.retain(|text| VERBS.iter().any(|verb| text.starts_with(verb)));
        found.extend(texts.into_iter().map(|text| Found {
            file: file.clone(),
            text,
        }));
    }
    found
}

/// The constants with statements that no `statements!` of their file names, and the statements that
/// are no constants.
pub(in crate::storage) fn unlisted(folder: &str) -> Vec<Found> {
    let scope = Scope {
        rules: &HashMap::new(),
        module: "",
    };
    let has_statement = |tokens: &[TokenTree]| {
        let mut texts = Vec::new();
        scope.scan(tokens.iter().cloned().collect(), &mut texts);
        let is_statement = |text: &&String| VERBS.iter().any(|verb| text.starts_with(verb));
        texts.iter().find(is_statement).cloned()
    };
    let mut found = Vec::new();
    for (file, tokens) in parsed(folder) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut listed, mut constants, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match (token, &tokens[at..]) {
                (TokenTree::Ident(word), [TokenTree::Ident(name), ..]) if *word == "const" => {
                    let end = tokens[at..].iter().position(is_semicolon);
                    let end = at + end.unwrap_or(tokens.len() - at);
                    if has_statement(&tokens[at..end]).is_some() {
                        constants.push(name.to_string());
                    }
                    at = end;
                }
                (TokenTree::Ident(word), [_, TokenTree::Group(list), ..])
                    if *word == "statements" =>
                {
                    listed.extend(list.stream().into_iter().map(|token| token.to_string()));
                    at += 2;
                }
                _ => others.push(token.clone()),
            }
        }
        constants.retain(|name| !listed.contains(name));
        constants.extend(has_statement(&others));
        found.extend(constants.into_iter().map(|text| Found {
            file: file.clone(),
            text,
        }));
    }
    found
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

fn is_equals(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '=')
}

/// The files below a folder, and the one of the room itself, with their tokens.
fn parsed(folder: &str) -> Vec<(String, TokenStream)> {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    visit(&room, &mut files);
    files.push(room.with_extension("rs"));
    let parse = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let name = path.strip_prefix(&room).unwrap_or(path);
        (name.display().to_string(), text.parse().unwrap())
    };
    files.iter().map(parse).collect()
}

fn visit(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            visit(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The rules that a file defines.
fn rules(tokens: &TokenStream) -> Rules {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut rules = Rules::new();
    for (at, window) in tokens.windows(4).enumerate() {
        if let [TokenTree::Ident(word), TokenTree::Ident(name), ..] = window
            && *word == "const"
        {
            let value = tokens[at..].split(is_semicolon).next().unwrap_or_default();
            let value = value.iter().skip_while(|token| !is_equals(token)).skip(1);
            let rule = Rule {
                params: Vec::new(),
                body: value.cloned().collect(),
            };
            rules.insert(name.to_string(), rule);
        }
        if let [
            TokenTree::Ident(macro_rules),
            TokenTree::Punct(_),
            TokenTree::Ident(name),
            TokenTree::Group(rule),
        ] = window
            && *macro_rules == "macro_rules"
        {
            let parts: Vec<TokenTree> = rule.stream().into_iter().collect();
            // One rule: what it takes, `=>`, what it makes.
            if let [TokenTree::Group(takes), _, _, TokenTree::Group(makes), ..] = &parts[..]
                && takes_literals(takes)
            {
                let rule = Rule {
                    params: params(takes.stream()),
                    body: makes.stream(),
                };
                rules.insert(name.to_string(), rule);
            }
        }
    }
    rules
}

/// Whether a rule takes literals, or other texts, and nothing else.
fn takes_literals(takes: &Group) -> bool {
    let takes = takes.stream().to_string();
    let texts = takes.matches("literal").count() + takes.matches("expr").count();
    takes.matches(':').count() == texts
}

/// The names after each `$`.
fn params(takes: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = takes.into_iter().collect();
    let mut names = Vec::new();
    for window in tokens.windows(2) {
        match window {
            [TokenTree::Punct(dollar), TokenTree::Ident(name)] if dollar.as_char() == '$' => {
                names.push(name.to_string());
            }
            [TokenTree::Punct(dollar), TokenTree::Group(several)] if dollar.as_char() == '$' => {
                names.extend(params(several.stream()));
            }
            _ => {}
        }
    }
    names
}

struct Scope<'a> {
    rules: &'a HashMap<&'a str, Rules>,
    module: &'a str,
}

impl Scope<'_> {
    fn rule(&self, name: &str) -> Option<&Rule> {
        let around = self.module.match_indices('/').map(|(at, _)| at);
        let modules = around.chain([self.module.len()]);
        let mut found = modules.filter_map(|end| self.rules.get(&self.module[..end])?.get(name));
        found.next_back().or_else(|| {
            // All files of the room have its macros.
            self.rules.get("weight")?.get(name)
        })
    }

    /// The texts of literals and of the macros that make texts.
    fn scan(&self, tokens: TokenStream, texts: &mut Vec<String>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match (token, &tokens[at.min(tokens.len())..]) {
                (TokenTree::Ident(name), [TokenTree::Punct(bang), rest @ ..])
                    if bang.as_char() == '!' =>
                {
                    match rest {
                        // The definition of a rule is no text.
                        [TokenTree::Ident(_), TokenTree::Group(_), ..] => at += 3,
                        [TokenTree::Group(args), ..] => {
                            at += 2;
                            self.call(&name.to_string(), args, texts);
                        }
                        _ => {}
                    }
                }
                (TokenTree::Punct(hash), [TokenTree::Group(attribute), ..])
                    if hash.as_char() == '#' =>
                {
                    at += 1;
                    if attribute.stream().to_string().replace(' ', "") == "cfg(test)" {
                        at += item(&tokens[at..]);
                    }
                }
                (TokenTree::Group(group), _) => self.scan(group.stream(), texts),
                (TokenTree::Literal(literal), _) => texts.extend(text(&literal.to_string())),
                _ => {}
            }
        }
    }

    fn call(&self, name: &str, args: &Group, texts: &mut Vec<String>) {
        if name == "concat" {
            let parts = split(args.stream());
            texts.push(parts.into_iter().map(|part| self.one(part)).collect());
        } else if name == "formatcp" {
            texts.push(self.formatted(split(args.stream())));
        } else if name == "event_code" {
            texts.push(code(&args.stream().to_string()));
        } else if let Some(rule) = self.rule(name) {
            let args = split(args.stream());
            self.scan(substitute(rule.body.clone(), &rule.params, &args), texts);
        } else {
            self.scan(args.stream(), texts);
        }
    }

    /// The text that an argument of `concat!` is.
    fn one(&self, part: TokenStream) -> String {
        let constant = self.rule(&part.to_string());
        let mut texts = Vec::new();
        self.scan(constant.map_or(part, |rule| rule.body.clone()), &mut texts);
        texts.concat()
    }

    /// The text of `formatcp!`, in which names stand for constants and for arguments: `name = text`.
    fn formatted(&self, parts: Vec<TokenStream>) -> String {
        let mut parts = parts.into_iter();
        let mut text = self.one(parts.next().unwrap_or_default());
        for argument in parts {
            let mut tokens = argument.into_iter();
            let name = tokens.next().unwrap().to_string();
            let value = self.one(tokens.skip(1).collect());
            text = text.replace(&format!("{{{name}}}"), &value);
        }
        while let Some((before, (name, behind))) = text
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            let value = self.one(name.parse().unwrap());
            text = format!("{before}{value}{behind}");
        }
        text
    }
}

/// How many tokens an item has: up to its braces or semicolon.
fn item(tokens: &[TokenTree]) -> usize {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// What stands between the commas.
fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        if matches!(&token, TokenTree::Punct(comma) if comma.as_char() == ',') {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.into_iter().map(TokenStream::from_iter).collect()
}

/// A body with arguments in place of the parameters; the last parameter has the rest of them.
fn substitute(body: TokenStream, params: &[String], args: &[TokenStream]) -> TokenStream {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match (token, tokens.get(at)) {
            (TokenTree::Punct(dollar), Some(TokenTree::Ident(name))) if dollar.as_char() == '$' => {
                at += 1;
                let param = params.iter().position(|param| name == param).unwrap();
                out.extend(args[param].clone());
            }
            // `$( ... ),+`: the last parameter, as often as it has arguments.
            (TokenTree::Punct(dollar), Some(TokenTree::Group(_))) if dollar.as_char() == '$' => {
                at += 3;
                let rest = &args[params.len() - 1..];
                for (number, arg) in rest.iter().enumerate() {
                    if number > 0 {
                        out.push(TokenTree::Punct(proc_macro2::Punct::new(
                            ',',
                            proc_macro2::Spacing::Alone,
                        )));
                    }
                    out.extend(arg.clone());
                }
            }
            (TokenTree::Group(group), _) => {
                let inside = substitute(group.stream(), params, args);
                out.push(TokenTree::Group(Group::new(group.delimiter(), inside)));
            }
            _ => out.push(token.clone()),
        }
    }
    out.into_iter().collect()
}

/// The text of a literal; `None` of other literals.
fn text(literal: &str) -> Option<String> {
    syn::parse_str::<syn::LitStr>(literal)
        .ok()
        .map(|literal| literal.value())
}
