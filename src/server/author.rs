//! What the author of a server decided about more than one of its graphs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

#[cfg(feature = "openai")]
use crate::llm::{Embeddings, embedding_model, openai};
use crate::{
    assistants::{self, Factory, Source},
    config::Settings,
    graph::Compiled,
    store,
};

/// What the author of the graphs decided about more than one of them.
#[derive(Default)]
pub(super) struct Author {
    pub(super) shared: Vec<store::Namespace>,
    pub(super) defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    pub(super) embedder: Option<store::Embedder>,
}

/// The embedding model of a name: with the address and the key of the settings, unless it names another provider. Names
/// of models at servers of one's own may have colons too.
#[cfg(feature = "openai")]
fn embeddings(settings: &Settings, name: &str) -> anyhow::Result<Arc<dyn Embeddings>> {
    if ["gemini:", "ollama:", "anthropic:"]
        .iter()
        .any(|provider| name.starts_with(provider))
    {
        return Ok(embedding_model(name)?);
    }
    let base = settings.openai_base_url.as_deref();
    let base = base.unwrap_or(openai::DEFAULT_BASE);
    let key = settings.openai_api_key.as_ref();
    let key = key.map_or("", |key| key.reveal());
    let name = name.strip_prefix("openai:").unwrap_or(name);
    Ok(Arc::new(openai::EmbeddingModel::new(base, key, name)?))
}

impl Author {
    /// Puts the embedding model of the settings in place of the author's.
    pub(super) fn with_embeddings(mut self, settings: &Settings) -> anyhow::Result<Self> {
        let Some(model) = &settings.embedding_model else {
            return Ok(self);
        };
        #[cfg(feature = "openai")]
        {
            let model = embeddings(settings, model)?;
            let fields = settings.embedding_fields.clone();
            self.embedder = Some(store::Embedder::new(model, fields));
            Ok(self)
        }
        #[cfg(not(feature = "openai"))]
        {
            self.embedder = None;
            anyhow::bail!(
                "BACKSTITCH_EMBEDDING_MODEL is `{model}`, but this program was built without the \
                 feature `openai`"
            )
        }
    }

    /// The graphs of functions for their default configs, beside those that there are.
    ///
    /// # Errors
    /// One cannot be made.
    pub(super) async fn sources(
        &self,
        graphs: Vec<(Arc<str>, Arc<Compiled>)>,
        factories: Vec<(Arc<str>, Factory)>,
        limit: Duration,
    ) -> anyhow::Result<Vec<(Arc<str>, Source)>> {
        let graphs = graphs.into_iter();
        let mut sources: Vec<_> = graphs.map(|(name, graph)| (name, graph.into())).collect();
        for (name, factory) in factories {
            let defaults = self.defaults.get(&name).cloned().unwrap_or_default();
            let made = factory.make(defaults.graph_config(), limit).await;
            let graph = made.map_err(|reason| {
                anyhow::anyhow!(
                    "the graph `{name}` cannot be made for its default config: {reason}"
                )
            })?;
            let factory = Some(factory);
            sources.push((name, Source { graph, factory }));
        }
        Ok(sources)
    }

    /// Puts the defaults of the settings over the author's, for graphs that exist.
    pub(super) fn with_defaults(
        mut self,
        settings: &Settings,
        names: &[Arc<str>],
    ) -> anyhow::Result<Self> {
        self.defaults.extend(settings.graph_defaults.clone());
        for name in self.defaults.keys() {
            let is_known = names.contains(name);
            anyhow::ensure!(
                is_known,
                "there are defaults for a graph `{name}`, which is not registered"
            );
        }
        Ok(self)
    }
}
