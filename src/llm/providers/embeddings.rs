//! Embedding models of Google and Ollama.

use async_trait::async_trait;
use genai::embed::EmbedRequest;

use super::{Client, Error, failure};
use crate::llm::{CallOptions, Embeddings, resilient::repeated};

/// Most texts in one request: what Gemini takes.
const MOST_TEXTS: usize = 100;

/// An embedding model of a provider.
pub struct EmbeddingModel {
    client: Client,
}

impl EmbeddingModel {
    /// The embedding model that `client` names.
    ///
    /// # Errors
    /// The provider has none.
    pub fn new(client: Client) -> Result<Self, Error> {
        if client.provider == super::Provider::Anthropic {
            return Err(Error::Unknown {
                name: client.model.to_string(),
                reason: "Anthropic has no embedding models".to_owned(),
            });
        }
        Ok(Self { client })
    }
}

#[async_trait]
impl Embeddings for EmbeddingModel {
    fn name(&self) -> &str {
        self.client.model()
    }

    async fn embed(&self, texts: Vec<String>) -> anyhow::Result<Vec<Vec<f32>>> {
        let mut out = Vec::with_capacity(texts.len());
        for some in texts.chunks(MOST_TEXTS) {
            let base = self.client.base();
            let limits = self.client.limits.of_call(&CallOptions::new(), 0);
            let made = repeated(|| async {
                let request = EmbedRequest::new_batch(some.to_vec());
                let call = self
                    .client
                    .client
                    .exec_embed(self.client.target(), request, None);
                let made = limits.within(base, call).await?;
                made.map_err(|error| failure::error(base, &error))
            })
            .await?;
            if made.embeddings.len() != some.len() {
                let reason = format!("{} vectors of {} texts", made.embeddings.len(), some.len());
                let at = base.to_owned();
                Err(Error::Unreadable { at, reason })?;
            }
            out.extend(made.into_vectors());
        }
        Ok(out)
    }
}
