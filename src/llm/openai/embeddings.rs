//! Embedding models behind a server that speaks OpenAI's protocol.

use std::sync::Arc;

use async_openai::types::embeddings::{CreateEmbeddingRequestArgs, EncodingFormat};
use async_trait::async_trait;

use super::{Client, Error, failed};
use crate::llm::Embeddings;

/// An embedding model at an OpenAI-compatible server.
pub struct EmbeddingModel {
    client: Client,
}

impl EmbeddingModel {
    /// The model `model` at the server with this base URL.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn new(
        base: impl Into<Arc<str>>,
        key: impl Into<String>,
        model: impl Into<Arc<str>>,
    ) -> Result<Self, Error> {
        let client = Client::new(base, key, model)?;
        Ok(Self { client })
    }
}

#[async_trait]
impl Embeddings for EmbeddingModel {
    fn name(&self) -> &str {
        self.client.model()
    }

    async fn embed(&self, texts: Vec<String>) -> anyhow::Result<Vec<Vec<f32>>> {
        let Client {
            client,
            base,
            model,
        } = &self.client;
        let request = CreateEmbeddingRequestArgs::default()
            .model(&**model)
            .input(texts)
            .encoding_format(EncodingFormat::Float)
            .build()
            .map_err(|error| failed(base, error))?;
        let made = client.embeddings().create(request).await;
        let mut made = made.map_err(|error| failed(base, error))?.data;
        made.sort_by_key(|embedding| embedding.index);
        Ok(made
            .into_iter()
            .map(|embedding| embedding.embedding)
            .collect())
    }
}
