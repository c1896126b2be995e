//! Embedding models behind a server that speaks OpenAI's protocol.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

use super::{Client, Error, failed, transport::Form};
use crate::llm::{CallOptions, Embeddings, resilient::repeated};

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
        let mut made = repeated(|| self.call(&texts)).await?.data;
        made.sort_by_key(|embedding| embedding.index);
        let vectors = made.into_iter().map(|embedding| embedding.embedding);
        Ok(vectors.collect())
    }
}

impl EmbeddingModel {
    async fn call(&self, texts: &[String]) -> Result<Embedded, Error> {
        let base = self.client.base();
        let limits = self.client.limits.of_call(&CallOptions::new(), 0);
        let model = self.client.model();
        let request = json!({"model": model, "input": texts, "encoding_format": "float"});
        let (client, transport) = self.client.for_call(Form::Json);
        let embeddings = client.embeddings();
        let call = embeddings.create_byot::<_, Embedded>(request);
        limits.within(base, call).await?.map_err(|error| {
            let cause = transport.failure();
            cause.unwrap_or_else(|| failed(base, error))
        })
    }
}

#[derive(Deserialize)]
struct Embedded {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}
