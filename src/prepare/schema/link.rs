//! Questions about links: which rows of another table will the children of a row refer to?
//!
//! The seeds of such a task are rows of a table of its own, named after the task: each is a pair of an
//! anchor row and a candidate at an observation time, with a reference to both and no column. A pair
//! is in the context of its own seed alone: the store lists no pairs as children of other rows.

use super::check::{fail, find_reference};
use super::predict::{Link, Predict, Question, What, in_key_order};
use super::predict_sql::{OBSERVED_AT, SPLIT, TARGET, quoted};
use super::{Reference, Schema, Table, Task};
use crate::error::{Context, Error, Result};
use crate::prepare::names::listed;
use crate::store::SemanticType;

/// The number of candidates that are drawn if a question does not say how many.
const NEGATIVES: i64 = 20;

/// The columns of a table of pairs with the keys of the anchor and of the candidate.
pub(super) struct PairColumns {
    pub(super) anchor: Vec<String>,
    pub(super) candidate: Vec<String>,
}

/// The places, in a schema, of what a question about links is made of.
pub(in crate::prepare) struct LinkPlaces {
    /// The table of its pairs.
    pub pairs: usize,
    /// The table of the children, and its references to the anchor and to the candidates.
    pub children: usize,
    pub to_anchor: usize,
    pub to_candidate: usize,
    /// The number of candidates that are drawn beside the linked ones.
    pub negatives: u32,
}

impl Schema {
    /// Returns what a question about links names; other questions may name none of it.
    pub(super) fn link<'a>(
        &'a self,
        predict: &'a Predict,
        children: &'a Table,
        reference: &Reference,
    ) -> Result<Option<Link<'a>>> {
        let Predict { what, to, to_reference, negatives, .. } = predict;
        if *what != What::Link {
            let given = [
                ("to", to.is_some()),
                ("to_reference", to_reference.is_some()),
                ("negatives", negatives.is_some()),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => fail(format!(
                    "what = {:?} takes no {name}; remove it, or set what = \"link\"",
                    what.name()
                )),
                None => Ok(None),
            };
        }
        let Some(to) = to else {
            return fail(
                "what = \"link\" needs the table of the rows that are linked to; add to = \"...\"",
            );
        };
        let to = self.find_table(to).context(|| "to")?;
        if to.key.is_empty() {
            return fail(format!(
                "to: table {:?} has no key, so its rows cannot be named; give the table a key",
                to.name
            ));
        }
        let wanted = negatives.unwrap_or(NEGATIVES);
        let negatives = u32::try_from(wanted).ok().filter(|&negatives| negatives > 0);
        let Some(negatives) = negatives else {
            return fail(format!(
                "negatives: expected 1 to {} rows to draw, found {wanted}; without drawn rows every \
                 label would be true: draw at least 1, or leave negatives out for {NEGATIVES}",
                u32::MAX
            ));
        };
        let reference = to_reference_of(self, predict, children, to, reference)?;
        refers_to_key(reference, to)?;
        Ok(Some(Link { to, reference, negatives }))
    }

    /// Returns the table of the pairs of a question about links.
    pub(super) fn pair_table(
        &self,
        task: &Task,
        columns: &PairColumns,
        link: &Link<'_>,
    ) -> Result<Table> {
        let is_taken = |table: &&Table| table.name.eq_ignore_ascii_case(&task.name);
        if let Some(table) = self.tables.iter().find(is_taken) {
            return fail(format!(
                "the task's pairs become table {:?}, and there is a table {:?}; rename that table \
                 or the task",
                task.name, table.name
            ));
        }
        let PairColumns { anchor, candidate } = columns;
        let key = key_of_pairs(columns);
        let to = |columns: &Vec<String>, to: &String| Reference {
            columns: columns.clone(),
            to: to.clone(),
            to_columns: Vec::new(),
        };
        let of_task = task.predict.as_ref().map_or(&task.name, |predict| &predict.anchor);
        Ok(Table {
            name: task.name.clone(),
            source: None,
            columns: key.iter().map(|name| (name.clone(), SemanticType::Ignored.into())).collect(),
            key,
            time: None,
            references: vec![to(anchor, of_task), to(candidate, &link.to.name)],
            labels_of: Some(task.name.clone()),
        })
    }

    /// Whether the rows of `table` are the pairs of a question about links.
    pub(in crate::prepare) fn is_of_pairs(&self, table: &Table) -> bool {
        let Some(name) = &table.labels_of else { return false };
        let task = self.tasks.iter().find(|task| task.name == *name);
        task.and_then(|task| task.predict.as_ref())
            .is_some_and(|predict| predict.what == What::Link)
    }

    /// Refuses a table of pairs, which only the seeds of its task see.
    pub(super) fn refuse_pairs(&self, table: &Table) -> Result<()> {
        if !self.is_of_pairs(table) {
            return Ok(());
        }
        fail(format!(
            "expected a table of the source or of labels, found {:?}, whose rows are the pairs of \
             that task, which only its seeds see; name another table",
            table.name
        ))
    }

    /// Returns what to do where `children` do not refer to `wanted` themselves, but by way of another table:
    /// the lines of an order refer to the order alone, and the order to the customer; or the other way
    /// round, the lines refer to a product, and the order does not.
    fn way_round(&self, predict: &Predict, children: &Table, wanted: &str) -> Option<String> {
        let to = |table: &'_ Table, name: &str| {
            table.references.iter().position(|reference| reference.to == name)
        };
        // The table with the rows that link, the one to which they refer, and what they lack.
        let lines = self.tables.iter().filter(|lines| {
            lines.name != children.name
                && lines.labels_of.is_none()
                && to(lines, &children.name).is_some()
                && to(lines, wanted).is_some()
        });
        let mut ways = lines.map(|lines| (lines, children, predict.anchor.as_str()));
        let through = || {
            let parents =
                children.references.iter().filter_map(|one| self.find_table(&one.to).ok());
            let mut parents = parents.filter(|parent| to(parent, wanted).is_some());
            parents.next().map(|parent| (children, parent, wanted))
        };
        let (lines, orders, lacking) = through().or_else(|| ways.next())?;
        let by = &lines.references[to(lines, &orders.name)?];
        let lent = &orders.references[to(orders, lacking)?];
        let keys = if by.to_columns.is_empty() { &orders.key } else { &by.to_columns };
        let column = |table: &Table, column: &String| {
            format!("{}.{}", quoted(table.source_name()), quoted(column))
        };
        let joined: Vec<_> = (by.columns.iter().zip(keys))
            .map(|(own, key)| format!("{} = {}", column(lines, own), column(orders, key)))
            .collect();
        let copied: Vec<_> = lent.columns.iter().map(|name| column(orders, name)).collect();
        Some(format!(
            "the rows of {:?} refer to {lacking:?} by way of {:?} alone: copy the key {} into them, in a view \
             of the source or in a table made from SELECT {}.*, {} FROM {} LEFT JOIN {} ON {}, then set of = \
             {:?}",
            lines.name,
            orders.name,
            listed(lent.columns.iter().map(String::as_str)),
            quoted(lines.source_name()),
            copied.join(", "),
            quoted(lines.source_name()),
            quoted(orders.source_name()),
            joined.join(" AND "),
            lines.name
        ))
    }

    /// Returns the places of what a question about links is made of; none for other tasks.
    pub(in crate::prepare) fn link_places(&self, task: &Task) -> Option<LinkPlaces> {
        let predict = task.predict.as_ref()?;
        let children = self.table(&predict.of)?;
        let table = &self.tables[children];
        let reference = reference(self, predict, table).ok()?;
        let link = self.link(predict, table, reference).ok()??;
        Some(LinkPlaces {
            pairs: self.table(&task.name)?,
            children,
            to_anchor: table.reference(&reference.name())?,
            to_candidate: table.reference(&link.reference.name())?,
            negatives: link.negatives,
        })
    }
}

impl PairColumns {
    /// Returns columns with the names that the children have for them, as far as these differ.
    pub(super) fn of(question: &Question<'_>, link: &Link<'_>) -> Result<Self> {
        let mut taken: Vec<String> = [OBSERVED_AT, TARGET, SPLIT].map(str::to_owned).to_vec();
        let mut unused = |columns: Vec<&String>, table: &Table| {
            let mut names = Vec::new();
            for column in columns {
                let mut name = column.clone();
                while taken.iter().any(|taken| taken.eq_ignore_ascii_case(&name)) {
                    name = format!("{} {name}", table.name);
                }
                taken.push(name.clone());
                names.push(name);
            }
            names
        };
        let (anchor, to) = (question.anchor, link.to);
        Ok(Self {
            anchor: unused(in_key_order(question.reference, anchor)?, anchor),
            candidate: unused(in_key_order(link.reference, to)?, to),
        })
    }
}

/// Returns the key of a table of pairs: the anchor's key, the observation time, the candidate's key.
pub(super) fn key_of_pairs(columns: &PairColumns) -> Vec<String> {
    let PairColumns { anchor, candidate } = columns;
    let time = OBSERVED_AT.to_owned();
    anchor.iter().cloned().chain([time]).chain(candidate.iter().cloned()).collect()
}

/// Returns the reference from the children to the anchor.
pub(super) fn reference<'a>(
    schema: &Schema,
    predict: &Predict,
    children: &'a Table,
) -> Result<&'a Reference> {
    let Predict { anchor, reference, .. } = predict;
    let expected =
        || (format!("the anchor {anchor:?}"), schema.way_round(predict, children, anchor));
    only_reference(children, anchor, ("reference", reference.as_ref()), None, expected)
}

/// Returns the reference from the children to the candidates, which is another one than to the anchor.
fn to_reference_of<'a>(
    schema: &Schema,
    predict: &Predict,
    children: &'a Table,
    to: &Table,
    to_anchor: &Reference,
) -> Result<&'a Reference> {
    let expected = || {
        let (to, to_anchor) = (&to.name, to_anchor.name());
        (
            format!("the table {to:?} of the candidates, beside {to_anchor:?} to the anchor"),
            schema.way_round(predict, children, to),
        )
    };
    let choice = ("to_reference", predict.to_reference.as_ref());
    only_reference(children, &to.name, choice, Some(to_anchor), expected)
}

/// Returns the only reference of the children to a table, or the one that a field of the question
/// chooses; `other` does not count. `expected` says where it should lead, and what to do if another table
/// has it, for the message.
fn only_reference<'a>(
    children: &'a Table,
    to: &str,
    (field, chosen): (&str, Option<&String>),
    other: Option<&Reference>,
    expected: impl FnOnce() -> (String, Option<String>),
) -> Result<&'a Reference> {
    if let Some(name) = chosen {
        find_reference(children, name).context(|| field.to_owned())?;
    }
    let is_meant = |reference: &&Reference| {
        reference.to == to
            && other != Some(*reference)
            && chosen.is_none_or(|name| *name == reference.name())
    };
    let found: Vec<_> = children.references.iter().filter(is_meant).collect();
    match found[..] {
        [reference] => Ok(reference),
        [] => {
            let (wanted, remedy) = expected();
            fail(format!(
                "expected a reference from {:?} to {wanted}, found none; {}",
                children.name,
                remedy.as_deref().unwrap_or("name other tables, or add the reference")
            ))
        }
        _ => {
            let names: Vec<_> = found.iter().map(|reference| reference.name()).collect();
            fail(format!(
                "table {:?} has several references to {to:?}; choose one with {field} = \"...\": {}",
                children.name,
                listed(names.iter().map(String::as_str))
            ))
        }
    }
}

/// Checks that a reference refers to the key of `parent`.
pub(super) fn refers_to_key(reference: &Reference, parent: &Table) -> Result<()> {
    let refers_to_key = reference.to_columns.is_empty()
        || (reference.to_columns.len() == parent.key.len()
            && parent.key.iter().all(|column| reference.to_columns.contains(column)));
    if refers_to_key {
        return Ok(());
    }
    Err(Error::schema(format!(
        "reference {:?} refers to {}, expected the key of {:?}; choose another reference",
        reference.name(),
        listed(reference.to_columns.iter().map(String::as_str)),
        parent.name
    )))
}
