//! The statements of both databases as lists, and whether the lists are complete.

#[cfg(all(feature = "failpoints", feature = "postgres", feature = "sqlite"))]
mod growth;
pub(in crate::storage) mod source;

/// A statement with the name of its constant, as a path below the room.
#[derive(Clone, Debug)]
pub(in crate::storage) struct Statement {
    pub(in crate::storage) name: String,
    pub(in crate::storage) text: &'static str,
}

/// A constant that holds one statement or several.
pub(in crate::storage) trait Texts {
    /// Its statements, named after the constant.
    fn statements(&self, module: &str, name: &str) -> Vec<Statement>;
}

impl Texts for &'static str {
    fn statements(&self, module: &str, name: &str) -> Vec<Statement> {
        let (_, module) = module.split_once("storage::").unwrap();
        vec![Statement {
            name: format!("{module}::{name}"),
            text: self,
        }]
    }
}

impl<const N: usize> Texts for [&'static str; N] {
    fn statements(&self, module: &str, name: &str) -> Vec<Statement> {
        let numbered = self.iter().enumerate();
        numbered
            .flat_map(|(at, text)| text.statements(module, &format!("{name}[{at}]")))
            .collect()
    }
}
