//! The table of settings: their names in the file and in the environment, their defaults, and what
//! the help says of them.

use super::secret;

/// The names of a setting in its sources.
pub struct Key {
    /// As the file spells it.
    pub name: &'static str,
    /// The variable of the environment.
    pub variable: &'static str,
    /// The default; none means "not set".
    pub default: Option<&'static str>,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Masks the secret parts of its value.
    pub mask: fn(&str) -> String,
}

/// A row is `name "VARIABLE" = "default", masked function: "what it does";`, where the default and
/// the function may be missing.
macro_rules! keys {
    ($($name:ident $variable:literal $(= $default:literal)? $(, masked $mask:ident)? : $about:literal;)*) => {
        &[$(Key {
            name: stringify!($name),
            variable: $variable,
            default: keys!(@default $($default)?),
            about: $about,
            mask: keys!(@mask $($mask)?),
        }),*]
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@mask) => { str::to_owned };
    (@mask $mask:ident) => { secret::$mask };
}

/// Every setting, in the order of the manual.
pub const KEYS: &[Key] = keys! {
    host "HOST" = "127.0.0.1": "address to listen on";
    port "PORT" = "2024": "port to listen on; 0 picks a free one";
    database_url "DATABASE_URL", masked mask_url: "a Postgres database; unset means an SQLite file";
    data "BACKSTITCH_DATA" = "./.backstitch": "folder of the SQLite file";
    memory "BACKSTITCH_MEMORY" = "false": "true: a temporary file, which goes when the server ends";
    codec "BACKSTITCH_CODEC" = "bincode": "bincode or json: in which form values are written to the database";
    lease "BACKSTITCH_LEASE" = "15": "seconds of silence after which other processes take over its runs";
    drain "BACKSTITCH_DRAIN" = "30": "seconds that runs may go on after SIGTERM";
    connections "BACKSTITCH_CONNECTIONS" = "20": "connections to Postgres";
    notifications "BACKSTITCH_NOTIFICATIONS" = "true": "processes on one Postgres notify each other";
    poll "BACKSTITCH_POLL" = "1": "seconds between reads of what others did without a notification";
    max_waiting "BACKSTITCH_MAX_WAITING" = "256": "requests that wait to change one thread";
    read_limit "BACKSTITCH_READ_LIMIT" = "5": "seconds that a read may take in the database";
    search_limit "BACKSTITCH_SEARCH_LIMIT" = "30": "seconds that a search through values of states may take";
    slots "BACKSTITCH_SLOTS" = "512": "runs executed at once";
    max_queued "BACKSTITCH_MAX_QUEUED" = "100": "runs that wait on one branch";
    known_waiting "BACKSTITCH_KNOWN_WAITING" = "10000": "waiting runs whose streams a process retains before they begin";
    max_streams "BACKSTITCH_MAX_STREAMS" = "10000": "event streams and waiting responses at once";
    stream_retention "BACKSTITCH_STREAM_RETENTION" = "24h": "how long events of resumable streams are stored";
    stream_log "BACKSTITCH_STREAM_LOG" = "268435456": "bytes of stored events of one run";
    stream_log_share "BACKSTITCH_STREAM_LOG_SHARE" = "4294967296": "bytes of stored events of all runs of one principal";
    graph_timeout "BACKSTITCH_GRAPH_TIMEOUT" = "10": "seconds that making a graph for a config may take";
    max_tasks "BACKSTITCH_MAX_TASKS" = "10000": "tasks of one superstep";
    run_ahead "BACKSTITCH_RUN_AHEAD" = "16": "supersteps that a run may be ahead of what is stored";
    run_ahead_bytes "BACKSTITCH_RUN_AHEAD_BYTES" = "1048576": "bytes of those supersteps";
    run_ahead_age "BACKSTITCH_RUN_AHEAD_AGE" = "50": "milliseconds since the oldest of them ended";
    log_level "LOG_LEVEL" = "info": "error, warn, info, debug, trace, or filters";
    log_format "LOG_FORMAT" = "text": "text or json, on stderr";
    api_keys "BACKSTITCH_API_KEYS", masked mask_pairs: "principal=key,...: who may call; unset means everybody here";
    admins "BACKSTITCH_ADMINS": "principals who may call /admin/*";
    public_metrics "BACKSTITCH_PUBLIC_METRICS" = "false": "true: /metrics needs no key";
    allow_open "BACKSTITCH_ALLOW_OPEN" = "false": "true: other machines may call without keys";
    hosts "BACKSTITCH_HOSTS": "without keys: names that clients may call besides loopback ones";
    cors_origins "BACKSTITCH_CORS_ORIGINS": "web pages that may call; unset means loopback ones without keys";
    memory_budget "BACKSTITCH_MEMORY_BUDGET" = "768": "MiB for what many requests hold at once";
    share "BACKSTITCH_SHARE" = "50": "percent of connections, streams, requests and memory for one principal";
    body_grace "BACKSTITCH_BODY_GRACE" = "30": "seconds for a body besides its size at BACKSTITCH_BODY_PACE";
    body_pace "BACKSTITCH_BODY_PACE" = "64000": "bytes a second that a body must come at";
    response_pace "BACKSTITCH_RESPONSE_PACE" = "64000": "bytes a second that responses of known size and large parts of others must be taken at";
    max_connections "BACKSTITCH_MAX_CONNECTIONS" = "20000": "connections at once; more wait to be accepted";
    stall "BACKSTITCH_STALL" = "30": "seconds that a client may take nothing of a response";
    requests "BACKSTITCH_REQUESTS" = "512": "requests worked on at once";
    connection_requests "BACKSTITCH_CONNECTION_REQUESTS" = "16": "those of one connection";
    request_wait "BACKSTITCH_REQUEST_WAIT" = "10": "seconds that a request may wait for its turn, or its principal's share";
    stored_response "BACKSTITCH_STORED_ANSWER" = "1048576": "bytes stored of a response to an idempotency key";
    body_values "BACKSTITCH_BODY_VALUES" = "200000": "values in the JSON of one body";
    body_limit "BACKSTITCH_BODY_LIMIT" = "4194304": "bytes of a request body";
    edit_limit "BACKSTITCH_EDIT_LIMIT" = "16777216": "bytes of a body that writes states or messages";
    page_bytes "BACKSTITCH_PAGE_BYTES" = "8388608": "bytes at which pages of messages, events or forks end";
    graph_defaults "LANGGRAPH_CONFIG": "config and context of runs, as JSON by graph";
    message_id_length "BACKSTITCH_MESSAGE_ID_LENGTH" = "255": "characters of the id of a new message";
    metadata_keys "BACKSTITCH_METADATA_KEYS" = "64": "keys of metadata";
    metadata_bytes "BACKSTITCH_METADATA_BYTES" = "16000": "bytes of metadata, as JSON";
    assistant_bytes "BACKSTITCH_ASSISTANT_BYTES" = "262144": "bytes of one version of an assistant";
    assistant_versions "BACKSTITCH_ASSISTANT_VERSIONS" = "1000": "versions of one assistant";
    thread_ttl "BACKSTITCH_THREAD_TTL": "minutes after which new threads expire that name no ttl";
    thread_ttl_strategy "BACKSTITCH_THREAD_TTL_STRATEGY" = "delete": "delete or keep_latest";
    sweep_interval "BACKSTITCH_SWEEP_INTERVAL" = "300": "seconds between sweeps of expired threads";
    crons "BACKSTITCH_CRONS" = "true": "whether this process creates the runs of crons";
    cron_bytes "BACKSTITCH_CRON_BYTES" = "262144": "bytes of a cron's payload and metadata";
    max_crons "BACKSTITCH_MAX_CRONS" = "50000": "crons of one principal";
    max_assistants "BACKSTITCH_MAX_ASSISTANTS" = "50000": "assistants of one principal";
    max_store_items "BACKSTITCH_MAX_STORE_ITEMS" = "1000000": "items of long-term memory of one principal";
    store_item_bytes "BACKSTITCH_STORE_ITEM_BYTES" = "1048576": "bytes of one such item";
    store_scan_items "BACKSTITCH_STORE_SCAN_ITEMS" = "50000": "items that one search reads";
    store_scan_bytes "BACKSTITCH_STORE_SCAN_BYTES" = "67108864": "bytes that one search reads";
    store_page_bytes "BACKSTITCH_STORE_PAGE_BYTES" = "16777216": "bytes in one page of a search";
    public_docs "BACKSTITCH_PUBLIC_DOCS" = "false": "true: /docs and /openapi.json need no key";
    webhook_allow_loopback "BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK" = "false": "true: webhooks may go to this machine";
    webhook_require_https "BACKSTITCH_WEBHOOK_REQUIRE_HTTPS" = "false": "true: webhooks must be https URLs";
    webhook_hosts "BACKSTITCH_WEBHOOK_HOSTS": "receivers that may be called although they are not public";
    webhook_secret "BACKSTITCH_WEBHOOK_SECRET", masked mask_all: "signs deliveries of webhooks";
    openai_api_key "OPENAI_API_KEY", masked mask_all: "key of the chat model";
    openai_base_url "OPENAI_BASE_URL", masked mask_url: "server of the chat model";
    openai_model "OPENAI_MODEL": "name of the chat model";
    embedding_model "BACKSTITCH_EMBEDDING_MODEL": "model by which long-term memory is searched";
    embedding_fields "BACKSTITCH_EMBEDDING_FIELDS" = "$": "which texts of items are embedded";
};
