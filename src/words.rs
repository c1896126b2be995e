//! Enums of words as clients write them, and as they are stored and shown.

/// Declares enums whose variants are words. What a text is called that is none of the words stands
/// behind the name: `pub enum Status, "run status" { ... }`.
macro_rules! words {
    ($($(#[$doc:meta])* pub enum $name:ident, $what:literal {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[schemars(inline)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        #[allow(dead_code, reason = "not every enum is both read and shown")]
        impl $name {
            /// Every word with its meaning, in the order in which they are listed to clients.
            pub const ALL: &[(&'static str, Self)] = &[$(($word, Self::$variant),)*];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|(word, _)| *word == text);
                let found = found.map(|(_, meaning)| *meaning);
                found.ok_or_else(|| format!("`{text}` is not a {}", $what))
            }
        }
    )*};
}

pub(crate) use words;
