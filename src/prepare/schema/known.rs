//! Columns whose values are known later than their rows: the result of a match that has begun.

use super::check::{fail, has_columns};
use super::{Known, Schema, Table};
use crate::error::{Context, Result};
use crate::store::SemanticType;

impl Table {
    /// Returns the columns with the times at which values of other columns are known, each once, in the
    /// order of those other columns.
    pub(in crate::prepare) fn known_times(&self) -> Vec<&String> {
        let mut times = Vec::new();
        for column in self.columns.values() {
            if let Some(Known::At(time)) = &column.known
                && !times.contains(&time)
            {
                times.push(time);
            }
        }
        times
    }

    /// Whether the column is read for its times: as that of the rows, or of values of other columns.
    pub(in crate::prepare) fn is_read_as_time(&self, name: &String) -> bool {
        let of_rows = self.time.as_ref().and_then(|time| time.column.as_ref());
        of_rows == Some(name) || self.known_times().contains(&name)
    }

    /// Refuses columns whose values are known later than their rows, but not those with a delay if they
    /// `may_have_delay`.
    pub(super) fn check_known_with_rows(
        &self,
        names: &[String],
        may_have_delay: bool,
    ) -> Result<()> {
        for name in names {
            match self.columns.get(name).and_then(|column| column.known.as_ref()) {
                Some(Known::Delay(_)) if may_have_delay => {}
                None => {}
                Some(known) => {
                    let when = match known {
                        Known::Delay(delay) => format!("{delay} after its row"),
                        Known::At(time) => format!("at {time:?}"),
                    };
                    return fail(format!(
                        "column {name:?}: expected a column that is known with its row, found one that is \
                         known {when}; leave it out, or read the source as two tables, a second one for \
                         what is known later"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Schema {
    /// Checks the columns of a table that are known later than their rows.
    pub(super) fn check_known(&self, table: &Table) -> Result<()> {
        let later = table.columns.iter().filter_map(|(n, c)| Some((n, c, c.known.as_ref()?)));
        for (name, column, known) in later {
            self.check_known_column(table, name, column.semantic)
                .and_then(|()| check_known_time(table, name, column.semantic, known))
                .context(|| format!("column {name:?}: known"))?;
        }
        Ok(())
    }

    fn check_known_column(&self, table: &Table, name: &str, semantic: SemanticType) -> Result<()> {
        if semantic == SemanticType::Ignored {
            return fail("expected a column that is a cell, found an ignored one; remove known");
        }
        if table.time.as_ref().and_then(|time| time.column.as_deref()) == Some(name) {
            return fail(
                "the column is the time of the table, which every context tells; set a delay in the \
                 table's time",
            );
        }
        if self.links_rows(table, name) {
            return fail(format!(
                "the column is part of a key or reference, so the links of a row tell its value from \
                 the row's own time on; read the source as two tables, a second one with a time and \
                 source = {:?} for what is known later",
                table.source_name()
            ));
        }
        Ok(())
    }
}

fn check_known_time(
    table: &Table,
    name: &str,
    semantic: SemanticType,
    known: &Known,
) -> Result<()> {
    match known {
        Known::Delay(delay) if delay.is_zero() => {
            fail("expected a delay longer than 0, found 0; remove known")
        }
        Known::Delay(_) if table.time.is_none() => fail(format!(
            "expected a table with a time, which the delay follows, found {:?}, which has none; give \
             the table a time, or name a column of times with known = {{ at = \"...\" }}",
            table.name
        )),
        Known::Delay(_) => Ok(()),
        Known::At(time) if time == name && semantic == SemanticType::Timestamp => fail(
            "at: expected another column of times, found the column itself; a time is hidden until it has \
             come in any case: remove known",
        ),
        Known::At(time) if time == name => fail(format!(
            "at: expected the column of the times at which these values are known, found the column itself, \
             of type {semantic}; name that column, or set known = {{ delay = \"...\" }}"
        )),
        Known::At(time) => {
            has_columns(table, std::slice::from_ref(time)).context(|| "at")?;
            match table.columns[time].semantic {
                SemanticType::Timestamp | SemanticType::Ignored => Ok(()),
                found => fail(format!(
                    "at: column {time:?}: expected type timestamp or ignored, found {found}; give the \
                     column this type, or choose another"
                )),
            }
        }
    }
}
