//! What the schema's references say together: who is looked up by what, and who comes first.

use crate::prepare::schema::{Reference, Schema};

/// The lists of columns of `table` by whose values others look up its rows, the key among them
/// where it is one of those.
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

/// The columns that a reference refers to.
pub(in crate::prepare) fn referred_columns(schema: &Schema, reference: &Reference) -> Vec<String> {
    if !reference.to_columns.is_empty() {
        return reference.to_columns.clone();
    }
    key_of(schema, &reference.to)
}

fn key_of(schema: &Schema, table: &str) -> Vec<String> {
    schema.table(table).map_or_else(Vec::new, |place| schema.tables[place].key.clone())
}

/// The number of each table's first relation.
pub(in crate::prepare) fn first_relations(schema: &Schema) -> Vec<usize> {
    let counts = schema.tables.iter().map(|table| table.references.len());
    counts.scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
}

/// The tables, each after those that it refers to, as far as there is no circle.
pub(in crate::prepare) fn reading_order(schema: &Schema) -> Vec<usize> {
    let parents = |place: usize| -> Vec<usize> {
        schema.tables[place].references.iter().filter_map(|r| schema.table(&r.to)).collect()
    };
    parents_first(schema.tables.len(), &parents)
}

/// The tables, each after the one that lends it its time; the schema's check found no circle.
pub(in crate::prepare) fn time_order(schema: &Schema) -> Vec<usize> {
    parents_first(schema.tables.len(), &|place| time_parent(schema, place).into_iter().collect())
}

/// The numbers below `count`, each after its parents; one that is its own ancestor comes as it can.
pub(in crate::prepare) fn parents_first(
    count: usize,
    parents: &dyn Fn(usize) -> Vec<usize>,
) -> Vec<usize> {
    fn visit(
        place: usize,
        parents: &dyn Fn(usize) -> Vec<usize>,
        seen: &mut [bool],
        order: &mut Vec<usize>,
    ) {
        if std::mem::replace(&mut seen[place], true) {
            return;
        }
        parents(place).into_iter().for_each(|parent| visit(parent, parents, seen, order));
        order.push(place);
    }
    let (mut seen, mut order) = (vec![false; count], Vec::new());
    (0..count).for_each(|place| visit(place, parents, &mut seen, &mut order));
    order
}

/// The table that lends table `place` its time.
pub(in crate::prepare) fn time_parent(schema: &Schema, place: usize) -> Option<usize> {
    let table = &schema.tables[place];
    let through = table.reference(table.time.as_ref()?.through.as_deref()?)?;
    schema.table(&table.references[through].to)
}
