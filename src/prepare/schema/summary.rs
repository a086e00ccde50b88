//! Summaries: what came to be known of a table's rows in each period, as a table of its own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::check::{fail, find_reference, has_averages, has_columns, safe_name};
use super::text::one_or_many;
use super::{Schema, Table};
use crate::error::{Context, Result};
use crate::store::Period;

/// A summary of a table's rows: their number, and means and quantiles of columns, for each period and,
/// where asked for, for each parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// The table of the rows; a table of labels, too.
    pub table: String,
    /// The numerical and boolean columns that are summarised; the number of rows always is.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The length of the periods.
    pub period: Period,
    /// The reference to the parents that have rows of their own: its columns, joined by `+`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Summary {
    /// Returns the name of the summary's table: `salaries by year and team_id`.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { table, period, .. } = self;
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" and {by}"));
        format!("{table} by {}{by}", period.name())
    }
}

impl Schema {
    /// Checks the summaries of a schema that has its tables of labels.
    pub(super) fn check_summaries(&self) -> Result<()> {
        let mut named = BTreeSet::new();
        for summary in &self.summaries {
            let name = summary.name();
            let is_first = named.insert(name.to_lowercase());
            self.check_summary(summary, &name, is_first).context(|| format!("summary {name:?}"))?;
        }
        Ok(())
    }

    fn check_summary(&self, summary: &Summary, name: &str, is_first: bool) -> Result<()> {
        if !is_first {
            return fail("the schema has this summary twice; put all columns into one of them");
        }
        if self.summaries.iter().any(|other| other.name() == summary.table) {
            return fail(format!(
                "expected a table of the source or of labels, found {:?}, which is a summary itself; \
                 name the table that it summarises",
                summary.table
            ));
        }
        let table = self.find_table(&summary.table)?;
        self.refuse_pairs(table)?;
        if table.time.is_none() {
            return fail(format!(
                "expected a table with a time, found {:?}, which has none; give the table a time",
                table.name
            ));
        }
        has_columns(table, &summary.columns)?;
        has_averages(table, &summary.columns)?;
        table.check_known_with_rows(&summary.columns, false)?;
        if let Some(by) = &summary.by {
            find_reference(table, by).context(|| "by")?;
        }
        let is_taken = |table: &&Table| table.name.to_lowercase() == name.to_lowercase();
        if let Some(table) = self.tables.iter().find(is_taken) {
            return fail(format!("there is a table {:?} already; rename that table", table.name));
        }
        safe_name(name, "; rename the table or the columns of the reference")
    }
}
