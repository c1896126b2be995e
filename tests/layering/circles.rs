//! Import circles inside a room: files that need each other cannot be understood one at a time.
//!
//! The imports are read from the sources: every `use`, and every path in code, resolved through
//! re-exports to the file that holds what it names. A circle is a set of files of one room in
//! which each one reaches every other one.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::source::{Source, sources};

/// Files that a circle may have: two types that know each other, and their helpers.
const LARGEST: usize = 4;

/// Circles that are there for a reason, as (a file of the circle, the most files it may have).
const REASONED: &[(&str, usize)] = &[
    // A task may run a graph, whose supersteps run tasks.
    ("engine/subgraph.rs", 6),
];

#[test]
fn no_circle_of_imports_inside_a_room_is_large() {
    let graph = Graph::read(&sources());
    let wrong: BTreeSet<String> = graph
        .circles()
        .into_iter()
        .filter(|circle| {
            let reasoned = REASONED
                .iter()
                .find(|(file, _)| circle.contains(&(*file).to_owned()));
            circle.len() > reasoned.map_or(LARGEST, |(_, most)| *most)
        })
        .map(|circle| {
            format!(
                "{} files import each other: {}",
                circle.len(),
                circle.join(", ")
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", super::list(&wrong));
}

/// The check above sees what it is meant to see.
#[test]
fn imports_are_found_through_re_exports_aliases_and_paths_in_code() {
    let file = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let graph = Graph::read(&[
        file("lib.rs", "mod room; mod other;"),
        file(
            "room.rs",
            "mod a; mod b; mod c; mod d; pub use b::B; use crate::other::O;",
        ),
        file(
            "room/a.rs",
            "use super::B as Renamed; fn f() { crate::room::c::g() }",
        ),
        file("room/b.rs", "use super::c; fn f() { c::g() } struct B;"),
        file(
            "room/c.rs",
            "fn g() { super::d::h() } #[cfg(test)] mod tests { use super::super::a; }",
        ),
        file(
            "room/d.rs",
            "use super::a::x; fn h() { assert!(1 > [super::a::f()].len()); }",
        ),
        file("other.rs", "use crate::room::a; struct O;"),
    ]);
    let edges = |from: &str| graph.imports[from].iter().cloned().collect::<Vec<_>>();
    assert_eq!(edges("room/a.rs"), ["room/b.rs", "room/c.rs"]);
    assert_eq!(edges("room/b.rs"), ["room/c.rs"]);
    assert_eq!(edges("room/c.rs"), ["room/d.rs"]);
    assert_eq!(edges("room/d.rs"), ["room/a.rs"]);
    assert_eq!(edges("room.rs"), Vec::<String>::new());
    let circle = ["room/a.rs", "room/b.rs", "room/c.rs", "room/d.rs"];
    assert_eq!(graph.circles(), [circle.map(str::to_owned).to_vec()]);
}

/// A path of modules and what comes after them.
type Path = Vec<String>;

/// Who imports whom, by file.
struct Graph {
    imports: BTreeMap<String, BTreeSet<String>>,
}

/// What one file declares and names outside its tests.
#[derive(Default)]
struct Module {
    file: String,
    /// Names that `use` brings in, with what they stand for.
    aliases: BTreeMap<String, Path>,
    /// Modules of which everything is brought in.
    globs: Vec<Path>,
    /// Paths of private imports and of code.
    named: Vec<Path>,
}

impl Graph {
    fn read(sources: &[Source]) -> Self {
        let modules: BTreeMap<Path, Module> = sources
            .iter()
            .map(|source| (module_path(&source.path), Module::read(source)))
            .collect();
        let mut imports = BTreeMap::new();
        for (path, module) in &modules {
            let found = module
                .named
                .iter()
                .filter_map(|named| resolve(&modules, path, named, 0))
                .map(|target| modules[&target].file.clone())
                .filter(|file| *file != module.file && room(file) == room(&module.file))
                .collect();
            imports.insert(module.file.clone(), found);
        }
        Self { imports }
    }

    /// Sets of files that reach each other, the largest first.
    fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&String, BTreeSet<&String>> = self
            .imports
            .keys()
            .map(|file| (file, self.reached_from(file)))
            .collect();
        let mut circles = BTreeSet::new();
        for (file, reached) in &reach {
            if reached.contains(file) {
                let circle: Vec<String> = reached
                    .iter()
                    .filter(|other| reach[*other].contains(file))
                    .map(|other| (*other).clone())
                    .collect();
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached_from(&self, file: &String) -> BTreeSet<&String> {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&String> = self.imports[file].iter().collect();
        while let Some(next) = waiting.pop() {
            if reached.insert(next) {
                waiting.extend(&self.imports[next]);
            }
        }
        reached
    }
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

fn module_path(file: &str) -> Path {
    match file {
        "lib.rs" | "main.rs" => vec![],
        file => {
            let place = file.trim_end_matches(".rs");
            place.split('/').map(str::to_owned).collect()
        }
    }
}

/// The module whose file holds what `named` means inside the module `from`.
fn resolve(
    modules: &BTreeMap<Path, Module>,
    from: &Path,
    named: &[String],
    depth: u8,
) -> Option<Path> {
    let (first, mut rest) = named.split_first()?;
    let mut at = match first.as_str() {
        "crate" | "backstitch" => vec![],
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        _ => {
            rest = named;
            from.clone()
        }
    };
    let local = rest.len() == named.len();
    for (index, segment) in rest.iter().enumerate() {
        if segment == "super" {
            at.pop();
            continue;
        }
        let inner: Path = at.iter().chain([segment]).cloned().collect();
        if modules.contains_key(&inner) {
            at = inner;
            continue;
        }
        let module = modules.get(&at)?;
        let after = &rest[index + 1..];
        if depth < 8
            && let Some(alias) = module.aliases.get(segment)
            && alias[..] != named[..]
        {
            let whole: Path = alias.iter().chain(after).cloned().collect();
            return resolve(modules, &at, &whole, depth + 1);
        }
        let through_glob = module.globs.iter().find_map(|glob| {
            let glob = resolve(modules, &at, glob, depth + 1)?;
            let inner: Path = glob.iter().chain([segment]).cloned().collect();
            let known =
                modules.contains_key(&inner) || modules[&glob].aliases.contains_key(segment);
            (depth < 8 && known && glob != at).then_some(glob)
        });
        if let Some(glob) = through_glob {
            let whole: Path = [String::from("self")]
                .iter()
                .chain(&rest[index..])
                .cloned()
                .collect();
            return resolve(modules, &glob, &whole, depth + 1);
        }
        // What is left is an item of this file, or of a foreign crate when the path began here.
        return (index > 0 || !local).then_some(at);
    }
    (!local || at != *from).then_some(at)
}

impl Module {
    fn read(source: &Source) -> Self {
        let file = syn::parse_file(&source.text);
        let file = file.unwrap_or_else(|error| panic!("src/{}: {error}", source.path));
        let mut module = Self {
            file: source.path.clone(),
            ..Self::default()
        };
        module.visit_file(&file);
        module
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: Path, private: bool) {
        let with = |name: &syn::Ident| {
            let mut path = prefix.clone();
            path.push(name.to_string());
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.import(&path.tree, with(&path.ident), private),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix.clone(), private);
                }
            }
            syn::UseTree::Glob(_) => {
                if private {
                    self.named.push(prefix.clone());
                }
                self.globs.push(prefix);
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = prefix.last().cloned().unwrap_or_default();
                self.alias(last, prefix, private);
            }
            syn::UseTree::Name(name) => {
                self.alias(name.ident.to_string(), with(&name.ident), private)
            }
            syn::UseTree::Rename(name) => {
                self.alias(name.rename.to_string(), with(&name.ident), private)
            }
        }
    }

    fn paths_in(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Path::new(), 0);
        let mut ends = |path: Path| {
            if path.len() > 1 {
                self.named.push(path);
            }
        };
        let mut groups = vec![];
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    ends(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => groups.push(group.stream()),
                        TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                    }
                }
            }
        }
        ends(path);
        for group in groups {
            self.paths_in(group);
        }
    }

    fn alias(&mut self, name: String, path: Path, private: bool) {
        if private {
            self.named.push(path.clone());
        }
        self.aliases.insert(name, path);
    }
}

fn only_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let text: String = list.tokens.to_string().split_whitespace().collect();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all(test,"))
    })
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    /// `pub(super)` says who may name an item, and names none.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !only_for_tests(&item.attrs) {
            let private = matches!(item.vis, syn::Visibility::Inherited);
            self.import(&item.tree, vec![], private);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let segments = segments.map(|segment| segment.ident.to_string());
        self.named.push(segments.collect());
        visit::visit_path(self, path);
    }

    /// What is inside a macro is code as well, mostly: its paths of more than one name count.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.paths_in(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}
