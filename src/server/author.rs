//! What the author of a server decided about more than one of its graphs.

use std::{collections::BTreeMap, sync::Arc};

#[cfg(feature = "openai")]
use crate::llm::openai;
use crate::{assistants, config::Settings, graph::Compiled, store};

/// What the author of the graphs decided about more than one of them.
#[derive(Default)]
pub(super) struct Author {
    pub(super) shared: Vec<store::Namespace>,
    pub(super) defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    pub(super) embedder: Option<store::Embedder>,
}

impl Author {
    /// Puts the embedding model of the settings in place of the author's.
    pub(super) fn with_embeddings(mut self, settings: &Settings) -> anyhow::Result<Self> {
        let Some(model) = &settings.embedding_model else {
            return Ok(self);
        };
        #[cfg(feature = "openai")]
        {
            let base = settings.openai_base_url.as_deref();
            let key = settings
                .openai_api_key
                .as_ref()
                .map_or("", |key| key.reveal());
            let base = base.unwrap_or(openai::DEFAULT_BASE);
            let model = openai::EmbeddingModel::new(base, key, model.as_str())?;
            let fields = settings.embedding_fields.clone();
            self.embedder = Some(store::Embedder::new(Arc::new(model), fields));
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

    /// Puts the defaults of the settings over the author's, for graphs that exist.
    pub(super) fn with_defaults(
        mut self,
        settings: &Settings,
        graphs: &[(Arc<str>, Arc<Compiled>)],
    ) -> anyhow::Result<Self> {
        self.defaults.extend(settings.graph_defaults.clone());
        for name in self.defaults.keys() {
            let is_known = graphs.iter().any(|(graph, _)| graph == name);
            anyhow::ensure!(
                is_known,
                "there are defaults for a graph `{name}`, which is not registered"
            );
        }
        Ok(self)
    }
}
