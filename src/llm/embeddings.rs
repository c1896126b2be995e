//! Embedding models: vectors of texts, by which long-term memory is searched.

use async_trait::async_trait;

/// An embedding model. A server finds items of long-term memory by meaning once it has one.
#[async_trait]
pub trait Embeddings: Send + Sync + 'static {
    /// The name of the model: vectors of another one are not compared with those of this one.
    fn name(&self) -> &str;

    /// One vector a text, in their order, all with as many numbers. None of the texts is empty.
    ///
    /// # Errors
    /// The model failed; what is stored or searched by it fails too.
    async fn embed(&self, texts: Vec<String>) -> anyhow::Result<Vec<Vec<f32>>>;
}
