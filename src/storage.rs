//! The databases: each room's storage trait, implemented once per database.

#[macro_use]
mod operations;

/// Lists the statements of a file, and the modules below it that have some, for the guards of their
/// plans. A test sees to it that no statement is missing.
macro_rules! statements {
    ($($name:ident),* $(; $($module:ident),*)?) => {
        #[cfg(test)]
        pub(in crate::storage) fn statements() -> Vec<$crate::storage::tests::Statement> {
            #[allow(unused_mut, reason = "files without modules below")]
            let mut all: Vec<$crate::storage::tests::Statement> = Vec::new();
            $(all.extend($crate::storage::tests::Texts::statements(&$name, module_path!(), stringify!($name)));)*
            $($(all.extend($module::statements());)*)?
            all
        }
    };
}

mod migrations;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(test)]
mod tests;
