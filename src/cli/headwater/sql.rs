//! `headwater sql`: prints the SQL of declared tasks.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::prepare::names::did_you_mean;
use crate::prepare::schema::Schema;

/// Prints the SQL of the tasks that a schema declares with [task.predict], to read or to change.
#[derive(Args)]
pub(super) struct SqlArgs {
    /// The schema file.
    schema: PathBuf,
    /// Print the SQL of this task alone (default: of all declared tasks).
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
}

pub(super) fn run(args: &SqlArgs) -> Result<()> {
    let schema = Schema::read(&args.schema)?.with_declared_tasks()?;
    let declared: Vec<_> = schema.tasks.iter().filter(|task| task.predict.is_some()).collect();
    let names = || declared.iter().map(|task| task.name.as_str());
    let wanted = |name: &str| args.task.as_ref().is_none_or(|task| task == name);
    if declared.is_empty() {
        return Err(Error::invalid(format!(
            "expected a task with [task.predict], found none in {}",
            args.schema.display()
        )));
    }
    if let Some(task) = args.task.as_ref().filter(|task| !names().any(|name| name == *task)) {
        return Err(Error::invalid(format!(
            "{} has no declared task {task:?}; {}",
            args.schema.display(),
            did_you_mean(task, names())
        )));
    }
    let mut output = Output::new();
    for task in declared.iter().filter(|task| wanted(&task.name)) {
        let sql = task.derived.as_ref().and_then(|derived| derived.sql.as_deref());
        output.line(&format!("-- task {}\n{};\n", task.name, sql.unwrap_or_default()))?;
    }
    Ok(())
}
