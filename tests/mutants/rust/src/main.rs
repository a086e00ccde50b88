//! Rewrites copies of Rust files so that each holds all its mutants, each behind a switch.
//!
//! `headwater-mutants FROM TO DROPPED FILE ..` reads the files in the folder FROM, writes them to the
//! folder TO with all mutants, and prints a line for each: number, file, line and name, between tabs.
//! Left out are the mutants that the file DROPPED names: a line for each, file and name between tabs.
//! Numbers do not depend on what is left out.
//!
//! Each mutant stands between `/*m17*/` and `/*17m*/`, so that an error of the compiler leads to it.

mod find;
mod operators;
mod values;

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use find::{Change, Form, changes};

/// The module that the rewritten library gets.
const SWITCH: &str = include_str!("switch.rs");

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [from, to, dropped, files @ ..] = &arguments[..] else {
        return Err("expected FROM TO DROPPED FILE ..".into());
    };
    let dropped = fs::read_to_string(dropped)?;
    let dropped: HashSet<&str> = dropped.lines().collect();
    let mut first = 0;
    for file in files {
        let text = fs::read_to_string(Path::new(from).join(file))?;
        let found = changes(&text).map_err(|e| format!("{file}: {e}"))?;
        let mut kept = Vec::new();
        for (number, change) in (first..).zip(&found) {
            let line = text[..change.at.start].matches('\n').count() + 1;
            let (before, after) = &change.words;
            let name = format!("{}: {before} -> {after}", change.function);
            println!("{number}\t{file}\t{line}\t{name}");
            if !dropped.contains(format!("{file}\t{name}").as_str()) {
                kept.push((number, change));
            }
        }
        write_if_new(&Path::new(to).join(file), &with_mutants(&text, &kept))?;
        first += found.len();
    }
    let library = fs::read_to_string(Path::new(from).join("src/lib.rs"))?;
    write_if_new(&Path::new(to).join("src/lib.rs"), &format!("{library}\npub mod mutant;\n"))?;
    write_if_new(&Path::new(to).join("src/mutant.rs"), SWITCH)?;
    Ok(())
}

/// A file that stays the same keeps its time, so that Cargo need not build it again.
fn write_if_new(path: &Path, text: &str) -> std::io::Result<()> {
    match fs::read_to_string(path) {
        Ok(before) if before == text => Ok(()),
        _ => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text)
        }
    }
}

/// Returns the text with all changes, which are sorted by place, the wider ones first.
fn with_mutants(text: &str, changes: &[(usize, &Change)]) -> String {
    let mut out = String::new();
    splice(text, 0, text.len(), changes, &mut out);
    out
}

fn splice(
    text: &str,
    start: usize,
    end: usize,
    mut changes: &[(usize, &Change)],
    out: &mut String,
) {
    let mut written = start;
    while let Some((_, first)) = changes.first() {
        let at = first.at.clone();
        let same =
            changes.iter().take_while(|(_, of)| of.at == at && of.form == first.form).count();
        let (here, rest) = changes.split_at(same);
        let inside = rest.iter().take_while(|(_, of)| of.at.start < at.end).count();
        let (inside, after) = rest.split_at(inside);
        out.push_str(&text[written..at.start]);
        opened(here, out);
        splice(text, at.start, at.end, inside, out);
        out.push_str(closed(first.form));
        written = at.end;
        changes = after;
    }
    out.push_str(&text[written..end]);
}

/// Writes the changes of one place, up to where the text as it is begins.
fn opened(changes: &[(usize, &Change)], out: &mut String) {
    let form = changes[0].1.form;
    if form == Form::Expression {
        out.push('(');
    }
    for (number, change) in changes {
        let on = format!("crate::mutant::on({number})");
        let new = format!("/*m{number}*/{}/*{number}m*/", change.new);
        out.push_str(&match form {
            Form::Expression | Form::Statement => format!("if {on} {{{new}}} else "),
            Form::Body => format!("if {on} {{{new}}} "),
            Form::Arm => format!("/*m{number}*/if !{on} /*{number}m*/"),
        });
    }
    if matches!(form, Form::Expression | Form::Statement) {
        out.push('{');
    }
}

fn closed(form: Form) -> &'static str {
    match form {
        Form::Expression => "})",
        Form::Statement => "}",
        Form::Body | Form::Arm => "",
    }
}
