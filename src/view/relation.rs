//! The names of relations and aggregates, for reading.
//!
//! The labels of a declared task refer to its anchor by columns that are numbered: `key_1`. A reader knows the
//! anchor's own key columns, so a context and a row show these. Settings and schemas take the store's names.

use crate::store::{AggregateMetadata, Store};

/// Returns a relation's name with its child table: `orders.customer_id`.
pub(super) fn relation_name(store: &Store, relation: u32) -> String {
    match key_of_anchor(store, relation) {
        Some((child, key)) => format!("{child}.{key}"),
        None => store.relation_name(relation as usize),
    }
}

/// Returns a relation's name without its child table: `customer_id`.
pub(super) fn short_relation_name(store: &Store, relation: u32) -> String {
    match key_of_anchor(store, relation) {
        Some((_, key)) => key,
        None => store.short_relation_name(relation as usize),
    }
}

/// Returns an aggregate's name: `orders by customer_id: count`.
pub(super) fn aggregate_name(store: &Store, aggregate: &AggregateMetadata) -> String {
    let known = key_of_anchor(store, aggregate.relation).and_then(|(child, key)| {
        let stored = &store.relations()[aggregate.relation as usize].metadata().name;
        let rest = aggregate.name.strip_prefix(&format!("{child} by {stored}"))?;
        Some(format!("{child} by {key}{rest}"))
    });
    known.unwrap_or_else(|| aggregate.name.clone())
}

/// Returns the child table and the key of the anchor, if the relation leads from the labels of a task to its
/// anchor by numbered columns.
fn key_of_anchor(store: &Store, relation: u32) -> Option<(&str, String)> {
    let relation = store.relations().get(relation as usize)?.metadata();
    if !relation.name.starts_with("key_1") {
        return None;
    }
    let (task, _) = store.metadata().label_tables().find(|(_, table)| *table == relation.child)?;
    let key = &store.tables()[task.anchor as usize].metadata().key;
    let numbered: Vec<String> = (1..=key.len()).map(|part| format!("key_{part}")).collect();
    let is_to_anchor = relation.parent == task.anchor && relation.name == numbered.join("+");
    let child = &store.tables()[relation.child as usize].metadata().name;
    (is_to_anchor && !key.is_empty()).then(|| (child.as_str(), key.join("+")))
}
