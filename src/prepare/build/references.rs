//! Derives from the references of a schema which columns are looked up, and the order of tables.

use crate::prepare::schema::{Reference, Schema, Task};
use crate::store::LinkMetadata;

/// Returns the lists of columns of `table` by which references and tasks look up its rows.
pub(in crate::prepare) fn looked_up(schema: &Schema, table: &str) -> Vec<Vec<String>> {
    let mut lists: Vec<Vec<String>> = Vec::new();
    let references = schema.tables.iter().flat_map(|t| &t.references).filter(|r| r.to == table);
    let referred = references.map(|reference| referred_columns(schema, reference));
    let anchored = schema.tasks.iter().filter_map(|task| task.derived.as_ref());
    let anchored = anchored.filter(|derived| derived.anchor == table);
    for list in referred.chain(anchored.map(|_| key_of(schema, table))) {
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists
}

/// Returns the columns that a reference refers to.
pub(in crate::prepare) fn referred_columns(schema: &Schema, reference: &Reference) -> Vec<String> {
    if !reference.to_columns.is_empty() {
        return reference.to_columns.clone();
    }
    key_of(schema, &reference.to)
}

fn key_of(schema: &Schema, table: &str) -> Vec<String> {
    schema.table(table).map_or_else(Vec::new, |place| schema.tables[place].key.clone())
}

/// Returns the number of each table's first relation.
pub(in crate::prepare) fn first_relations(schema: &Schema) -> Vec<usize> {
    let counts = schema.tables.iter().map(|table| table.references.len());
    counts.scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
}

/// Returns the relations of a task that asks about links; none for other tasks.
pub(in crate::prepare) fn link_of(schema: &Schema, task: &Task) -> Option<LinkMetadata> {
    let places = schema.link_places(task)?;
    let first = first_relations(schema);
    // A pair refers to its anchor, then to its candidate.
    let pairs = first[places.pairs] as u32;
    let children = first[places.children];
    Some(LinkMetadata {
        anchor: pairs,
        candidate: pairs + 1,
        from_anchor: (children + places.to_anchor) as u32,
        from_candidate: (children + places.to_candidate) as u32,
        negatives: places.negatives,
    })
}

/// Returns the tables, each after those that it refers to, except in circles.
pub(in crate::prepare) fn reading_order(schema: &Schema) -> Vec<usize> {
    let parents = |place: usize| -> Vec<usize> {
        schema.tables[place].references.iter().filter_map(|r| schema.table(&r.to)).collect()
    };
    parents_first(schema.tables.len(), &parents)
}

/// Returns the tables, each after the one whose time it inherits; the schema has no circle.
pub(in crate::prepare) fn time_order(schema: &Schema) -> Vec<usize> {
    parents_first(schema.tables.len(), &|place| time_parent(schema, place).into_iter().collect())
}

/// Returns the numbers below `count`, each after its parents, except in circles.
pub(in crate::prepare) fn parents_first(
    count: usize,
    parents: &dyn Fn(usize) -> Vec<usize>,
) -> Vec<usize> {
    fn visit(
        place: usize,
        parents: &dyn Fn(usize) -> Vec<usize>,
        visited: &mut [bool],
        order: &mut Vec<usize>,
    ) {
        if std::mem::replace(&mut visited[place], true) {
            return;
        }
        parents(place).into_iter().for_each(|parent| visit(parent, parents, visited, order));
        order.push(place);
    }
    let (mut visited, mut order) = (vec![false; count], Vec::new());
    (0..count).for_each(|place| visit(place, parents, &mut visited, &mut order));
    order
}

/// Returns the table whose time table `place` inherits.
pub(in crate::prepare) fn time_parent(schema: &Schema, place: usize) -> Option<usize> {
    let table = &schema.tables[place];
    let through = table.reference(table.time.as_ref()?.through.as_deref()?)?;
    schema.table(&table.references[through].to)
}
