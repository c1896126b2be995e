//! Tests of settings: their sources, their order and their mistakes.

use std::fs;

use super::*;

mod numbers;

fn settings(flags: Flags, variables: &[(&str, &str)], file: &str) -> Result<Settings, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs::write(&path, file).unwrap();
    let flags = Flags {
        config: flags.config.or(Some(path)),
        ..flags
    };
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::check(&Layers::read(flags, &variable, &BTreeMap::new())?)
}

fn refusal(variables: &[(&str, &str)], file: &str) -> String {
    settings(Flags::default(), variables, file)
        .unwrap_err()
        .to_string()
}

fn shown(settings: &Settings, name: &str) -> (String, String) {
    let line = settings
        .shown
        .iter()
        .find(|shown| shown.name == name)
        .unwrap();
    (line.value.clone(), line.origin.to_string())
}

#[test]
fn the_readme_names_every_setting() {
    let readme = include_str!("../../README.md");
    for key in KEYS {
        assert!(
            readme.contains(&format!("`{}`", key.variable)),
            "{}",
            key.variable
        );
    }
}

#[test]
fn without_any_source_a_server_listens_on_loopback_and_keeps_a_file() {
    let settings = settings(Flags::default(), &[], "").unwrap();
    assert_eq!((settings.host.as_str(), settings.port), ("127.0.0.1", 2024));
    assert_eq!(settings.storage, Storage::Sqlite("./.backstitch".into()));
    assert!(settings.api_keys.is_empty() && !settings.webhooks.allow_loopback);
    assert_eq!(shown(&settings, "port"), ("2024".into(), "default".into()));
}

#[test]
fn without_any_source_runs_of_a_server_have_the_bounds_of_those_without_one() {
    let settings = settings(Flags::default(), &[], "").unwrap();
    assert_eq!(settings.run_ahead, RunAhead::default());
    assert_eq!(settings.max_tasks, crate::engine::MAX_TASKS);
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let file = "port = 1\nhost = \"0.0.0.0\"\nlog_level = \"debug\"\n";
    let variables = [("PORT", "2"), ("LOG_LEVEL", "warn")];
    let flags = Flags {
        port: Some("3".into()),
        ..Flags::default()
    };
    let settings = settings(flags, &variables, file).unwrap();
    assert_eq!(
        (
            settings.port,
            settings.log_level.as_str(),
            settings.host.as_str()
        ),
        (3, "warn", "0.0.0.0")
    );
    assert_eq!(shown(&settings, "port").1, "flag --port");
    assert_eq!(shown(&settings, "log_level").1, "environment LOG_LEVEL");
    assert!(shown(&settings, "host").1.ends_with(FILE));
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let settings = settings(Flags::default(), &[("DATABASE_URL", "")], "").unwrap();
    assert_eq!(settings.storage, Storage::Sqlite("./.backstitch".into()));
}

#[test]
fn memory_and_a_database_url_are_settled_by_weight_or_refused() {
    let url = [("DATABASE_URL", "postgres://localhost/b")];
    let flags = Flags {
        memory: true,
        ..Flags::default()
    };
    assert_eq!(settings(flags, &url, "").unwrap().storage, Storage::Memory);
    let by_file = settings(Flags::default(), &url, "memory = true").unwrap();
    assert_eq!(
        by_file.storage,
        Storage::Postgres(Secret::from("postgres://localhost/b"))
    );
    let both = [url[0], ("BACKSTITCH_MEMORY", "1")];
    assert!(refusal(&both, "").contains("both set"));
}

#[test]
fn a_wrong_value_is_refused_with_its_place_and_what_would_do() {
    assert_eq!(
        refusal(&[("PORT", "70000")], ""),
        "port (environment PORT): `70000` is not a port; write 0 to 65535"
    );
    assert!(refusal(&[("DATABASE_URL", "mysql://h/d")], "").contains("postgres://"));
    assert!(refusal(&[("LOG_FORMAT", "xml")], "").contains("`text` or `json`"));
    let codec = refusal(&[("BACKSTITCH_CODEC", "xml")], "");
    assert!(codec.contains("`bincode` or `json`"), "{codec}");
    assert!(refusal(&[("OPENAI_BASE_URL", "localhost:1")], "").contains("http://"));
    for wrong in ["0", "3601", "-1", "1.5", "soon"] {
        let refusal = refusal(&[("BACKSTITCH_LEASE", wrong)], "");
        assert!(refusal.contains("write 1 to 3600 seconds"), "{refusal}");
    }
    // Not to wait for runs at all is a choice.
    let drain = settings(Flags::default(), &[("BACKSTITCH_DRAIN", "0")], "");
    assert!(drain.unwrap().drain.is_zero());
}

#[test]
fn a_wrong_file_is_refused_with_its_name_and_line() {
    let unknown = refusal(&[], "prot = 1");
    assert!(unknown.contains(FILE) && unknown.contains("`prot`") && unknown.contains("port"));
    assert!(refusal(&[], "port = 1\nhost = = 2").contains("line 2"));
    assert!(refusal(&[], "port = [1]").contains("array"));
    let flags = Flags {
        config: Some("/nowhere/else.toml".into()),
        ..Flags::default()
    };
    let missing = settings(flags, &[], "").unwrap_err().to_string();
    assert!(missing.contains("/nowhere/else.toml"));
}

#[test]
fn api_keys_come_from_a_list_or_a_table() {
    let list = [("BACKSTITCH_API_KEYS", "ann=k1, bob=k2,ann=k3")];
    let keys = settings(Flags::default(), &list, "").unwrap().api_keys;
    let pairs: Vec<_> = keys
        .iter()
        .map(|key| (&*key.principal, key.key.reveal()))
        .collect();
    assert_eq!(pairs, [("ann", "k1"), ("bob", "k2"), ("ann", "k3")]);
    let table = settings(Flags::default(), &[], "[api_keys]\nann = \"k1\"").unwrap();
    assert_eq!(table.api_keys, keys[..1]);
}

#[test]
fn a_key_in_the_table_is_one_key_whatever_is_in_it() {
    let of = |text: &str| settings(Flags::default(), &[], &format!("[api_keys]\n{text}"));
    let keys = of("ann = \"k=1==\"").unwrap().api_keys;
    assert_eq!(
        (&*keys[0].principal, keys[0].key.reveal()),
        ("ann", "k=1==")
    );
    for (wrong, named) in [
        ("ann = \"geheim,admin=x\"", "the key of `ann`"),
        ("\"ann,bob\" = \"geheim\"", "`ann,bob`"),
        ("\"ann=bob\" = \"geheim\"", "`ann=bob`"),
    ] {
        let refusal = refusal(&[], &format!("[api_keys]\n{wrong}"));
        assert!(
            refusal.contains(named) && !refusal.contains("geheim"),
            "{refusal}"
        );
    }
}

#[test]
fn numbers_of_the_file_may_be_fractions_where_those_of_the_environment_may() {
    let set = settings(Flags::default(), &[], "thread_ttl = 0.5").unwrap();
    let by_variable = [("BACKSTITCH_THREAD_TTL", "0.5")];
    let same = settings(Flags::default(), &by_variable, "").unwrap();
    assert_eq!(shown(&set, "thread_ttl").0, shown(&same, "thread_ttl").0);
    assert!(refusal(&[], "port = 0.5").contains("port"));
}

#[test]
fn administrators_are_principals_by_name() {
    let of = |text| settings(Flags::default(), &[("BACKSTITCH_ADMINS", text)], "");
    assert_eq!(of("ann, bob").unwrap().admins, ["ann", "bob"]);
    for wrong in [",", "ann,", "ann=key"] {
        assert!(of(wrong).is_err(), "{wrong:?}");
    }
    let nobody = settings(Flags::default(), &[], "").unwrap();
    assert!(nobody.admins.is_empty());
}

#[test]
fn api_keys_of_a_wrong_form_are_refused_without_showing_them() {
    for wrong in ["geheim", "=geheim", "ann=geheim,bob=geheim", "ann=geheim,"] {
        let refusal = refusal(&[("BACKSTITCH_API_KEYS", wrong)], "");
        assert!(
            refusal.contains("entry") && !refusal.contains("geheim"),
            "{refusal}"
        );
    }
}

#[test]
fn nothing_that_is_shown_holds_a_secret() {
    let variables = [
        (
            "DATABASE_URL",
            "postgres://ann:ge@he/im@db:5432/b?password=geheim",
        ),
        ("BACKSTITCH_API_KEYS", "ann=geheim"),
        ("OPENAI_API_KEY", "geheim"),
    ];
    let settings = settings(Flags::default(), &variables, "").unwrap();
    for text in [settings.to_string(), format!("{settings:?}")] {
        assert!(
            !text.contains("geheim") && !text.contains("ge@he"),
            "{text}"
        );
    }
    assert_eq!(
        shown(&settings, "database_url").0,
        "postgres://ann:***@db:5432/b?***"
    );
    assert_eq!(shown(&settings, "api_keys").0, "ann=***");
    assert_eq!(secret::mask_url("postgres://ann:ge?heim@db/b"), "***");
    let broken = refusal(&[], "openai_api_key = \"geheim");
    assert!(!broken.contains("geheim"), "{broken}");
}

#[test]
fn receivers_of_webhooks_are_public_unless_they_are_named_and_the_secret_is_not_shown() {
    let named = [
        ("BACKSTITCH_WEBHOOK_HOSTS", "hooks.internal,10.0.0.0/8"),
        ("BACKSTITCH_WEBHOOK_REQUIRE_HTTPS", "true"),
        ("BACKSTITCH_WEBHOOK_SECRET", "whsec_TWZLUTlyOEc="),
    ];
    let settings = settings(Flags::default(), &named, "").unwrap();
    assert!(settings.webhooks.check("https://10.1.2.3/").is_ok());
    assert!(settings.webhooks.check("http://10.1.2.3/").is_err());
    assert!(settings.webhooks.check("https://192.168.0.1/").is_err());
    assert_eq!(shown(&settings, "webhook_secret").0, "***");
    let shown = format!("{settings:?} {settings}");
    assert!(settings.webhook_secret.is_some() && !shown.contains("TWZL"));
    assert!(refusal(&[("BACKSTITCH_WEBHOOK_HOSTS", "http://x")], "").contains("`http://x`"));
    assert!(refusal(&[("BACKSTITCH_WEBHOOK_SECRET", "whsec_!")], "").contains("base64"));
}
