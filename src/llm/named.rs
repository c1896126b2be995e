//! Models by name: `anthropic:claude-sonnet-4-5`, with keys and addresses from the providers' usual variables.

use std::{env, sync::Arc};

#[cfg(feature = "models")]
use super::providers::{self, Provider};
use super::{Embeddings, Error, Fallback, openai};
use crate::hint::did_you_mean;

const PROVIDERS: [&str; 4] = ["openai", "anthropic", "gemini", "ollama"];

/// The chat model of this name, such as `openai:gpt-4o-mini`, `anthropic:claude-sonnet-4-5`,
/// `gemini:gemini-2.5-flash` or `ollama:qwen3`. Calls that fail for a reason that may pass are repeated, as
/// [`Fallback`] says, which may name further models:
///
/// ```no_run
/// use backstitch::llm::model;
///
/// let model = model("anthropic:claude-sonnet-4-5")?.or(model("openai:gpt-4o")?);
/// # Ok::<_, backstitch::llm::Error>(())
/// ```
///
/// Keys and base URLs are those of the environment: `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY` or
/// `GOOGLE_API_KEY`, and `OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL`, `GEMINI_BASE_URL`, `OLLAMA_HOST`.
///
/// # Errors
/// The name is not of this form, its provider is unknown or not built in, or its key is not set.
pub fn model(name: &str) -> Result<Fallback, Error> {
    model_with(name, &environment)
}

/// The embedding model of this name, such as `openai:text-embedding-3-small`, `gemini:gemini-embedding-001` or
/// `ollama:nomic-embed-text`, with keys and addresses as [`model`] has them.
///
/// # Errors
/// As [`model`], and Anthropic has no embedding models.
pub fn embedding_model(name: &str) -> Result<Arc<dyn Embeddings>, Error> {
    embedding_with(name, &environment)
}

/// A variable of the environment that is not empty.
fn environment(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The provider and its name of the model.
fn parse(name: &str) -> Result<(&str, &str), Error> {
    let unknown = |reason: String| Error::Unknown {
        name: name.to_owned(),
        reason,
    };
    let Some((provider, model)) = name.split_once(':') else {
        let reason = "a name is a provider and its model, as in `openai:gpt-4o-mini`";
        return Err(unknown(reason.to_owned()));
    };
    if !PROVIDERS.contains(&provider) {
        let hint = did_you_mean(provider, PROVIDERS);
        let all = PROVIDERS.join("`, `");
        let reason = format!("there is no provider `{provider}`{hint}; there are `{all}`");
        return Err(unknown(reason));
    }
    if model.trim().is_empty() {
        return Err(unknown(format!("it names no model of `{provider}`")));
    }
    Ok((provider, model))
}

fn model_with(name: &str, variables: &Variables<'_>) -> Result<Fallback, Error> {
    let (provider, id) = parse(name)?;
    if provider == "openai" {
        let (base, key) = openai_access(name, variables)?;
        return Ok(Fallback::new(openai::Client::new(base, key, id)?));
    }
    #[cfg(feature = "models")]
    return Ok(Fallback::new(client(name, provider, id, variables)?));
    #[cfg(not(feature = "models"))]
    Err(without(name))
}

fn embedding_with(name: &str, variables: &Variables<'_>) -> Result<Arc<dyn Embeddings>, Error> {
    let (provider, id) = parse(name)?;
    if provider == "openai" {
        let (base, key) = openai_access(name, variables)?;
        return Ok(Arc::new(openai::EmbeddingModel::new(base, key, id)?));
    }
    #[cfg(feature = "models")]
    {
        let client = client(name, provider, id, variables)?;
        Ok(Arc::new(providers::EmbeddingModel::new(client)?))
    }
    #[cfg(not(feature = "models"))]
    Err(without(name))
}

#[cfg(not(feature = "models"))]
fn without(name: &str) -> Error {
    Error::Unknown {
        name: name.to_owned(),
        reason: "this program was built without the feature `models`".to_owned(),
    }
}

fn missing(name: &str, variables: &str) -> Error {
    Error::Unknown {
        name: name.to_owned(),
        reason: format!("{variables} is not set"),
    }
}

/// Base URL and key. Servers other than OpenAI's own often take any key, or none.
fn openai_access(name: &str, variables: &Variables<'_>) -> Result<(String, String), Error> {
    let base = variables("OPENAI_BASE_URL");
    let key = variables("OPENAI_API_KEY");
    if base.is_none() && key.is_none() {
        return Err(missing(name, "OPENAI_API_KEY"));
    }
    let base = base.unwrap_or_else(|| openai::DEFAULT_BASE.to_owned());
    Ok((base, key.unwrap_or_default()))
}

#[cfg(feature = "models")]
fn client(
    name: &str,
    provider: &str,
    id: &str,
    variables: &Variables<'_>,
) -> Result<providers::Client, Error> {
    let (provider, keys, base): (_, &[&str], _) = match provider {
        "anthropic" => (
            Provider::Anthropic,
            &["ANTHROPIC_API_KEY"],
            "ANTHROPIC_BASE_URL",
        ),
        "gemini" => (
            Provider::Gemini,
            &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            "GEMINI_BASE_URL",
        ),
        _ => (Provider::Ollama, &[], "OLLAMA_HOST"),
    };
    let key = keys.iter().find_map(|key| variables(key));
    if key.is_none() && !keys.is_empty() {
        return Err(missing(name, &keys.join(" or ")));
    }
    let client = providers::Client::new(provider, key.unwrap_or_default(), id)?;
    Ok(match variables(base) {
        Some(base) if provider == Provider::Ollama => client.at(ollama_base(&base)),
        Some(base) => client.at(with_scheme(&base)),
        None => client,
    })
}

/// `OLLAMA_HOST` is often an address without a scheme, or a host alone: then the port is Ollama's own, as for its
/// other clients.
#[cfg(feature = "models")]
fn ollama_base(address: &str) -> String {
    if address.contains("://") {
        return address.to_owned();
    }
    let (host, path) = address
        .find('/')
        .map_or((address, ""), |at| address.split_at(at));
    // An IPv6 address has colons of its own.
    let is_bare = host.parse::<std::net::Ipv6Addr>().is_ok();
    let port = if is_bare { None } else { host.rsplit_once(':') };
    let port = port.filter(|(_, port)| port.parse::<u16>().is_ok());
    let (host, port) = port.unwrap_or((host, "11434"));
    match (host, is_bare) {
        ("", _) => format!("http://127.0.0.1:{port}{path}"),
        (host, true) => format!("http://[{host}]:{port}{path}"),
        (host, false) => format!("http://{host}:{port}{path}"),
    }
}

/// Addresses are also written without a scheme.
#[cfg(feature = "models")]
fn with_scheme(base: &str) -> String {
    if base.contains("://") {
        base.to_owned()
    } else {
        format!("http://{base}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::ChatModel;

    fn named(name: &str, set: &[(&str, &str)]) -> Result<Fallback, Error> {
        let variables = |wanted: &str| {
            let found = set.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        model_with(name, &variables)
    }

    fn refusal(name: &str, set: &[(&str, &str)]) -> String {
        let Err(error) = named(name, set) else {
            panic!("{name} is no model")
        };
        error.to_string()
    }

    #[test]
    fn a_wrong_name_gets_the_names_that_there_are() {
        assert!(refusal("gpt-4o", &[]).contains("as in `openai:gpt-4o-mini`"));
        let error = refusal("antropic:claude", &[]);
        assert!(error.contains("did you mean `anthropic`?"), "{error}");
        assert!(error.contains("`gemini`, `ollama`"), "{error}");
        assert!(refusal("gemini: ", &[]).contains("no model of `gemini`"));
    }

    #[test]
    fn a_missing_key_is_named_before_anything_is_called() {
        assert!(refusal("openai:gpt-4o", &[]).contains("OPENAI_API_KEY is not set"));
        // A server of one's own may take no key.
        let own = [("OPENAI_BASE_URL", "http://localhost:8000/v1")];
        assert_eq!(
            named("openai:tiny", &own).expect("a model").provider(),
            Some("openai")
        );
    }

    #[cfg(feature = "models")]
    #[test]
    fn a_host_of_ollama_without_a_port_gets_its_own() {
        for (address, base) in [
            ("127.0.0.1", "http://127.0.0.1:11434"),
            ("box", "http://box:11434"),
            ("box/ai", "http://box:11434/ai"),
            ("box:80", "http://box:80"),
            (":8080", "http://127.0.0.1:8080"),
            ("::1", "http://[::1]:11434"),
            ("[::1]", "http://[::1]:11434"),
            ("[::1]:80", "http://[::1]:80"),
            ("https://box", "https://box"),
        ] {
            assert_eq!(ollama_base(address), base, "{address}");
        }
    }

    #[cfg(feature = "models")]
    #[test]
    fn each_provider_has_its_variables() {
        assert!(refusal("anthropic:claude", &[]).contains("ANTHROPIC_API_KEY is not set"));
        assert!(
            refusal("gemini:flash", &[]).contains("GEMINI_API_KEY or GOOGLE_API_KEY is not set")
        );
        for (name, key, provider) in [
            (
                "anthropic:claude-sonnet-4-5",
                "ANTHROPIC_API_KEY",
                "anthropic",
            ),
            ("gemini:gemini-2.5-flash", "GOOGLE_API_KEY", "google_genai"),
            ("ollama:qwen3:8b", "NONE", "ollama"),
        ] {
            let model = named(name, &[(key, "secret")]).expect("a model");
            assert_eq!(model.provider(), Some(provider));
        }
        let client = client("x", "ollama", "qwen3:8b", &|_| Some("box:11434".to_owned()));
        let client = client.expect("a client");
        assert_eq!(
            (client.base(), client.model()),
            ("http://box:11434", "qwen3:8b")
        );
    }
}
