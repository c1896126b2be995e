//! The table of settings: their names in the file and in the environment, and their defaults.

use super::secret;

/// The names of a setting in its sources.
pub struct Key {
    /// As the file spells it.
    pub name: &'static str,
    /// The variable of the environment.
    pub variable: &'static str,
    /// The default; none means "not set".
    pub default: Option<&'static str>,
    /// Masks the secret parts of its value.
    pub mask: fn(&str) -> String,
}

/// Every setting, in the order of the manual.
pub const KEYS: &[Key] = &[
    Key::new("host", "HOST", Some("127.0.0.1")),
    Key::new("port", "PORT", Some("2024")),
    Key::new("database_url", "DATABASE_URL", None).masked(secret::mask_url),
    Key::new("data", "BACKSTITCH_DATA", Some("./.backstitch")),
    Key::new("memory", "BACKSTITCH_MEMORY", Some("false")),
    Key::new("lease", "BACKSTITCH_LEASE", Some("15")),
    Key::new("drain", "BACKSTITCH_DRAIN", Some("30")),
    Key::new("connections", "BACKSTITCH_CONNECTIONS", Some("20")),
    Key::new("notifications", "BACKSTITCH_NOTIFICATIONS", Some("true")),
    Key::new("poll", "BACKSTITCH_POLL", Some("1")),
    Key::new("max_waiting", "BACKSTITCH_MAX_WAITING", Some("256")),
    Key::new("read_limit", "BACKSTITCH_READ_LIMIT", Some("5")),
    Key::new("slots", "BACKSTITCH_SLOTS", Some("512")),
    Key::new("max_queued", "BACKSTITCH_MAX_QUEUED", Some("100")),
    Key::new("max_streams", "BACKSTITCH_MAX_STREAMS", Some("10000")),
    Key::new(
        "stream_retention",
        "BACKSTITCH_STREAM_RETENTION",
        Some("24h"),
    ),
    Key::new("stream_log", "BACKSTITCH_STREAM_LOG", Some("268435456")),
    Key::new("max_tasks", "BACKSTITCH_MAX_TASKS", Some("10000")),
    Key::new("run_ahead", "BACKSTITCH_RUN_AHEAD", Some("16")),
    Key::new(
        "run_ahead_bytes",
        "BACKSTITCH_RUN_AHEAD_BYTES",
        Some("1048576"),
    ),
    Key::new("run_ahead_age", "BACKSTITCH_RUN_AHEAD_AGE", Some("50")),
    Key::new("log_level", "LOG_LEVEL", Some("info")),
    Key::new("log_format", "LOG_FORMAT", Some("text")),
    Key::new("api_keys", "BACKSTITCH_API_KEYS", None).masked(secret::mask_pairs),
    Key::new("admins", "BACKSTITCH_ADMINS", None),
    Key::new("public_metrics", "BACKSTITCH_PUBLIC_METRICS", Some("false")),
    Key::new("allow_open", "BACKSTITCH_ALLOW_OPEN", Some("false")),
    Key::new("hosts", "BACKSTITCH_HOSTS", None),
    Key::new("cors_origins", "BACKSTITCH_CORS_ORIGINS", None),
    Key::new("memory_budget", "BACKSTITCH_MEMORY_BUDGET", Some("768")),
    Key::new("body_grace", "BACKSTITCH_BODY_GRACE", Some("30")),
    Key::new("stall", "BACKSTITCH_STALL", Some("30")),
    Key::new("requests", "BACKSTITCH_REQUESTS", Some("512")),
    Key::new(
        "connection_requests",
        "BACKSTITCH_CONNECTION_REQUESTS",
        Some("16"),
    ),
    Key::new(
        "stored_response",
        "BACKSTITCH_STORED_ANSWER",
        Some("1048576"),
    ),
    Key::new("body_values", "BACKSTITCH_BODY_VALUES", Some("500000")),
    Key::new("body_limit", "BACKSTITCH_BODY_LIMIT", Some("4194304")),
    Key::new("edit_limit", "BACKSTITCH_EDIT_LIMIT", Some("16777216")),
    Key::new("page_bytes", "BACKSTITCH_PAGE_BYTES", Some("8388608")),
    Key::new("graph_defaults", "LANGGRAPH_CONFIG", None),
    Key::new(
        "assistant_bytes",
        "BACKSTITCH_ASSISTANT_BYTES",
        Some("262144"),
    ),
    Key::new(
        "assistant_versions",
        "BACKSTITCH_ASSISTANT_VERSIONS",
        Some("1000"),
    ),
    Key::new("thread_ttl", "BACKSTITCH_THREAD_TTL", None),
    Key::new(
        "thread_ttl_strategy",
        "BACKSTITCH_THREAD_TTL_STRATEGY",
        Some("delete"),
    ),
    Key::new("sweep_interval", "BACKSTITCH_SWEEP_INTERVAL", Some("300")),
    Key::new("crons", "BACKSTITCH_CRONS", Some("true")),
    Key::new("cron_bytes", "BACKSTITCH_CRON_BYTES", Some("262144")),
    Key::new("max_crons", "BACKSTITCH_MAX_CRONS", Some("50000")),
    Key::new("max_assistants", "BACKSTITCH_MAX_ASSISTANTS", Some("50000")),
    Key::new(
        "max_store_items",
        "BACKSTITCH_MAX_STORE_ITEMS",
        Some("1000000"),
    ),
    Key::new(
        "store_item_bytes",
        "BACKSTITCH_STORE_ITEM_BYTES",
        Some("1048576"),
    ),
    Key::new(
        "store_scan_items",
        "BACKSTITCH_STORE_SCAN_ITEMS",
        Some("50000"),
    ),
    Key::new(
        "store_scan_bytes",
        "BACKSTITCH_STORE_SCAN_BYTES",
        Some("67108864"),
    ),
    Key::new(
        "store_page_bytes",
        "BACKSTITCH_STORE_PAGE_BYTES",
        Some("16777216"),
    ),
    Key::new("public_docs", "BACKSTITCH_PUBLIC_DOCS", Some("false")),
    Key::new(
        "webhook_allow_loopback",
        "BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK",
        Some("false"),
    ),
    Key::new(
        "webhook_require_https",
        "BACKSTITCH_WEBHOOK_REQUIRE_HTTPS",
        Some("false"),
    ),
    Key::new("webhook_hosts", "BACKSTITCH_WEBHOOK_HOSTS", None),
    Key::new("webhook_secret", "BACKSTITCH_WEBHOOK_SECRET", None).masked(secret::mask_all),
    Key::new("openai_api_key", "OPENAI_API_KEY", None).masked(secret::mask_all),
    Key::new("openai_base_url", "OPENAI_BASE_URL", None).masked(secret::mask_url),
    Key::new("openai_model", "OPENAI_MODEL", None),
    Key::new("embedding_model", "BACKSTITCH_EMBEDDING_MODEL", None),
    Key::new("embedding_fields", "BACKSTITCH_EMBEDDING_FIELDS", Some("$")),
];

impl Key {
    const fn new(
        name: &'static str,
        variable: &'static str,
        default: Option<&'static str>,
    ) -> Self {
        Self {
            name,
            variable,
            default,
            mask: str::to_owned,
        }
    }

    const fn masked(self, mask: fn(&str) -> String) -> Self {
        Self { mask, ..self }
    }
}
