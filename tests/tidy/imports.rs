//! Which file of a crate imports which, read from the text, and the circles among them.
//!
//! A name that a `mod.rs` hands on with `pub use` belongs to the file that defines it: an import of it
//! is an edge to that file, and the `pub use` itself is none.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path in the crate: `["prepare", "source"]`.
type Path = Vec<String>;

/// The files of a crate: their modules, and what each imports.
pub(crate) struct Imports {
    modules: BTreeMap<Path, Module>,
}

struct Module {
    file: String,
    code: String,
    uses: Vec<Use>,
}

/// One name that a `use` brings in.
struct Use {
    is_public: bool,
    path: Path,
    alias: String,
}

impl Imports {
    /// Reads files, each with its path below `src`.
    pub(crate) fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let module = |(file, text): (&str, &str)| {
            let (code, uses) = without_uses(&without_noise(text));
            (module_path(file), Module { file: file.to_owned(), code, uses })
        };
        Self { modules: files.into_iter().map(module).collect() }
    }

    /// The circles of files, each as `a.rs -> b.rs -> a.rs`; empty where there are none.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut edges: BTreeMap<&Path, BTreeSet<&Path>> =
            self.modules.keys().map(|module| (module, self.edges(module))).collect();
        let mut found = Vec::new();
        loop {
            // A file that imports no other that is left is in no circle.
            while let Some(end) = edges.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| *from)
            {
                remove(end, &mut edges);
            }
            let Some(mut at) = edges.keys().next().copied() else { return found };
            let mut way = vec![at];
            let circle = loop {
                at = edges[at].first().expect("every file that is left imports one that is left");
                if let Some(start) = way.iter().position(|&earlier| earlier == at) {
                    break way.split_off(start);
                }
                way.push(at);
            };
            let files = circle.iter().chain([&circle[0]]);
            let files: Vec<_> = files.map(|module| &*self.modules[*module].file).collect();
            found.push(files.join(" -> "));
            circle.into_iter().for_each(|module| remove(module, &mut edges));
        }
    }

    /// The modules whose names `module` uses.
    fn edges<'s>(&'s self, module: &'s Path) -> BTreeSet<&'s Path> {
        let Module { file, code, uses } = &self.modules[module];
        let imported = uses.iter().filter(|item| !(item.is_public && file.ends_with("mod.rs")));
        let imported = imported.map(|item| item.path.clone());
        let targets = imported.chain(paths_in(code)).filter_map(|path| {
            let target = self.definer(&self.absolute(module, &path)?, 0);
            (target != module && !target.is_empty()).then_some(target)
        });
        targets.collect()
    }

    /// The path from the crate's top; none of one that leads to another crate.
    fn absolute(&self, module: &Path, path: &[String]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let mut own = module.clone();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([own, rest.to_vec()].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                own.truncate(own.len().checked_sub(ups)?);
                Some([own, path[ups..].to_vec()].concat())
            }
            child => {
                own.push(child.to_owned());
                self.modules.contains_key(&own).then(|| [own, rest.to_vec()].concat())
            }
        }
    }

    /// The module that defines what `path` names, through any `use` that hands it on.
    fn definer(&self, path: &[String], depth: usize) -> &Path {
        let known = (0..=path.len()).rev().find_map(|n| self.modules.get_key_value(&path[..n]));
        let (module, content) = known.expect("the crate's top is a module");
        let Some(name) = path.get(module.len()) else { return module };
        let handed_on = content.uses.iter().find(|item| item.alias == *name);
        match handed_on.and_then(|item| self.absolute(module, &item.path)) {
            Some(target) if depth < 8 => {
                let rest = &path[module.len() + 1..];
                self.definer(&[&target, rest].concat(), depth + 1)
            }
            _ => module,
        }
    }
}

fn remove<'m>(module: &'m Path, edges: &mut BTreeMap<&'m Path, BTreeSet<&'m Path>>) {
    edges.remove(module);
    for to in edges.values_mut() {
        to.remove(module);
    }
}

/// `prepare/source/mod.rs` is the module `prepare::source`.
fn module_path(file: &str) -> Path {
    let mut parts: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
        parts.pop();
    }
    parts
}

/// The code without comments, strings, unit tests in the file, and `in` of visibilities.
fn without_noise(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("'\"'") {
            3
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if c == '"' {
            1 + string_length(&rest[1..])
        } else if rest.starts_with("pub(in ") {
            rest.find(')').map_or(rest.len(), |end| end + 1)
        } else {
            code.push(c);
            c.len_utf8()
        };
        rest = &rest[skipped..];
    }
    // Tests in the file may name anything of their room.
    let tests = code.match_indices("#[cfg(").find(|(at, _)| {
        let attribute = code[*at..].lines().next().unwrap_or_default();
        let inside = code[*at..].find("\nmod ").is_some_and(|module| {
            let line = code[at + module + 1..].lines().next().unwrap_or_default();
            line.ends_with('{') && code[*at..at + module].lines().count() <= 2
        });
        attribute.contains("test") && inside
    });
    if let Some((at, _)) = tests {
        code.truncate(at);
    }
    code
}

/// The length of a string after its first quote, with its last.
fn string_length(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

/// The code without its `use`s, and these.
fn without_uses(code: &str) -> (String, Vec<Use>) {
    let (mut left, mut uses, mut rest) = (String::with_capacity(code.len()), Vec::new(), code);
    while let Some(at) = rest.find("use ") {
        let start = rest[..at].rfind(['\n', ';', '}']).map_or(0, |end| end + 1);
        let before = rest[start..at].trim();
        let is_public = before.starts_with("pub");
        let end = at + rest[at..].find(';').unwrap_or(rest.len() - at);
        if before.is_empty() || is_public {
            left.push_str(&rest[..start]);
            let mut found = |path, alias| uses.push(Use { is_public, path, alias });
            expand(&rest[at + 4..end], &[], &mut found);
            rest = &rest[end..];
        } else {
            left.push_str(&rest[..at + 4]);
            rest = &rest[at + 4..];
        }
    }
    (left + rest, uses)
}

/// Calls `found` with each path of the tree of a `use`, and the name that it gets.
fn expand(tree: &str, before: &[String], found: &mut impl FnMut(Path, String)) {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{').and_then(|tree| tree.strip_suffix('}')) {
        let (mut nesting, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => nesting += 1,
                '}' => nesting -= 1,
                ',' if nesting == 0 => {
                    expand(&group[start..at], before, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        return expand(&group[start..], before, found);
    }
    let word: String = tree.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let rest = tree[word.len()..].trim_start();
    let path = [before, std::slice::from_ref(&word)].concat();
    if let Some(rest) = rest.strip_prefix("::") {
        return expand(rest, &path, found);
    }
    let alias = rest.strip_prefix("as ").map_or(word.clone(), |alias| alias.trim().to_owned());
    match (word.as_str(), before.last()) {
        ("", _) => {}
        ("self", Some(last)) => {
            let alias = if rest.is_empty() { last.clone() } else { alias };
            found(before.to_vec(), alias);
        }
        _ => found(path, alias),
    }
}

/// The paths of at least two parts that the code names outside its `use`s.
fn paths_in(code: &str) -> Vec<Path> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !is_part(c)).filter(|word| word.contains("::"));
    words.map(|word| word.trim_matches(':').split("::").map(str::to_owned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::Imports;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        Imports::read(files.iter().copied()).circles()
    }

    #[test]
    fn a_planted_circle_is_found_however_it_is_written() {
        let lib = ("lib.rs", "mod a;\nmod b;");
        for (a, b) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{\n    b::{self, B},\n};", "fn f() { crate::a::A::new() }"),
            ("pub use crate::b::B;", "use crate::a as other;"),
        ] {
            let found = circles(&[lib, ("a.rs", a), ("b.rs", b)]);
            assert_eq!(found, ["a.rs -> b.rs -> a.rs"], "{a} | {b}");
        }
        let three = [
            ("lib.rs", ""),
            ("room/mod.rs", "mod x;\nmod y;\npub use x::X;\nuse y::Y;"),
            ("room/x.rs", "pub struct X;"),
            ("room/y.rs", "use super::Z;"),
        ];
        assert_eq!(circles(&three), ["room/mod.rs -> room/y.rs -> room/mod.rs"]);
    }

    #[test]
    fn a_name_handed_on_belongs_to_the_file_that_defines_it() {
        let files = [
            ("lib.rs", ""),
            ("room/mod.rs", "mod x;\nmod y;\npub use x::X;\npub use y::Y;"),
            ("room/x.rs", "use super::Y; // use super::Z;\nconst T: &str = \"crate::room::Z\";"),
            (
                "room/y.rs",
                "pub(in crate::room) struct Y;\n#[cfg(test)]\nmod tests {\n    use crate::room::X;\n}",
            ),
        ];
        assert_eq!(circles(&files), [""; 0]);
    }
}
