//! Vectors of texts: of items when they are stored, and of the texts that they are searched by.

use std::{sync::Arc, time::Duration};

use super::{Error, field::Field};
use crate::{llm::Embeddings, value::Value};

/// Most texts of one item.
const MOST_TEXTS: usize = 100;
/// Most numbers of a vector.
const MOST_NUMBERS: usize = 16_384;
/// How long the model may take for the texts of one item.
const LIMIT: Duration = Duration::from_secs(30);

/// Which texts of an item are embedded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// Those that the server is configured for.
    #[default]
    Default,
    /// None: the item is not found by meaning.
    Off,
    /// Those at these paths.
    Fields(Vec<Field>),
}

/// A vector of an item, to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// Where its text is in the value.
    pub path: Arc<str>,
    /// Which of the texts there it is.
    pub part: i32,
    /// Numbers of 32 bits, little endian; the vector has the length 1.
    pub bytes: Vec<u8>,
}

/// The vectors of an item and their model.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    /// The model's name.
    pub model: Arc<str>,
    /// Its vectors.
    pub all: Vec<Vector>,
}

/// Makes vectors with the model of the server.
#[derive(Clone)]
pub struct Embedder {
    model: Arc<dyn Embeddings>,
    name: Arc<str>,
    fields: Vec<Field>,
}

impl Embedder {
    /// As [`new`](Self::new), with the paths as authors write them.
    pub fn at(model: Arc<dyn Embeddings>, fields: &[&str]) -> Result<Self, String> {
        let fields = fields.iter().map(|field| Field::parse(field));
        Ok(Self::new(model, fields.collect::<Result<_, _>>()?))
    }

    /// Embeds with `model`; of items whose writer says nothing else the texts at `fields`.
    pub fn new(model: Arc<dyn Embeddings>, fields: Vec<Field>) -> Self {
        let name = model.name().into();
        Self {
            model,
            name,
            fields,
        }
    }

    /// The model's name.
    pub fn model(&self) -> &Arc<str> {
        &self.name
    }

    /// The vectors of an item.
    ///
    /// # Errors
    /// It has too many texts, or the model failed.
    pub async fn vectors(&self, value: &Value, index: &Index) -> Result<Vectors, Error> {
        let fields = match index {
            Index::Default => &self.fields,
            Index::Off => &vec![],
            Index::Fields(fields) => fields,
        };
        let mut paths = vec![];
        let mut texts = vec![];
        for field in fields {
            let found = field.texts(value, MOST_TEXTS + 1);
            for (part, text) in (0..).zip(found) {
                paths.push((field.text().clone(), part));
                texts.push(text);
            }
            if texts.len() > MOST_TEXTS {
                return Err(Error::TooManyTexts { most: MOST_TEXTS });
            }
        }
        let vectors = self.embed(texts).await?;
        let all = paths.into_iter().zip(vectors);
        Ok(Vectors {
            model: self.name.clone(),
            all: all
                .map(|((path, part), vector)| Vector {
                    path,
                    part,
                    bytes: vector
                        .iter()
                        .flat_map(|number| number.to_le_bytes())
                        .collect(),
                })
                .collect(),
        })
    }

    /// The vector of a text that is searched by.
    ///
    /// # Errors
    /// The model failed.
    pub async fn query(&self, text: &str) -> Result<Arc<[f32]>, Error> {
        let vectors = self.embed(vec![text.to_owned()]).await?;
        let vector = vectors.into_iter().next().unwrap_or_default();
        Ok(vector.into())
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, Error> {
        if texts.is_empty() {
            return Ok(vec![]);
        }
        let count = texts.len();
        let made = tokio::time::timeout(LIMIT, self.model.embed(texts)).await;
        let made = made.map_err(|_| Error::Embedding("it took too long".into()))?;
        let mut vectors = made.map_err(|error| Error::Embedding(format!("{error:#}")))?;
        if vectors.len() != count {
            let reason = format!("it made {} vectors of {count} texts", vectors.len());
            return Err(Error::Embedding(reason));
        }
        for vector in &mut vectors {
            normalize(vector).map_err(|reason| Error::Embedding(reason.into()))?;
        }
        Ok(vectors)
    }
}

/// Makes the length of a vector 1, so that the product of two is their cosine.
fn normalize(vector: &mut [f32]) -> Result<(), &'static str> {
    if vector.is_empty() || vector.len() > MOST_NUMBERS {
        return Err("a vector of it has no numbers, or too many");
    }
    let squares = vector.iter().map(|number| f64::from(*number).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if !length.is_finite() || length == 0.0 {
        return Err("a vector of it has no direction");
    }
    for number in vector {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "vectors have 32 bits a number"
        )]
        {
            *number = (f64::from(*number) / length) as f32;
        }
    }
    Ok(())
}
