//! Refuses calls in views whose results are not those of the data: of chance, of the time, of the
//! connection.
//!
//! SQLite says of each function whether its result depends on the arguments alone. It says so of the
//! functions of dates, too, which take `now` as an argument, that of a column perhaps. These are
//! replaced: each call is checked, then made on another connection.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::{Connection, Error, params_from_iter};

/// Functions of full-text search, whose results are those of the data, although SQLite does not say so.
const OF_DATA: [&str; 6] = ["bm25", "highlight", "match", "matchinfo", "offsets", "snippet"];

/// The functions of dates, each with the places of its arguments that are times. Modifiers follow.
const DATES: [(&str, &[usize]); 7] = [
    ("date", &[0]),
    ("datetime", &[0]),
    ("julianday", &[0]),
    ("strftime", &[1]),
    ("time", &[0]),
    ("timediff", &[0, 1]),
    ("unixepoch", &[0]),
];

/// The present time: `subsec` is it, too, if no other time stands before it.
const NOW: [&str; 3] = ["now", "subsec", "subsecond"];

/// The modifiers that depend on the time zone of the machine.
const OF_MACHINE: [&str; 2] = ["localtime", "utc"];

/// The latest refused call of a connection.
#[derive(Clone, Default)]
pub(super) struct Varying(Arc<Mutex<Option<String>>>);

impl Varying {
    /// Refuses such calls on `connection`.
    pub(super) fn watch(connection: &mut Connection) -> rusqlite::Result<Self> {
        let found = Self::default();
        // 2048 stands for a function that is deterministic; those of windows and aggregates are, too.
        let varying: BTreeSet<String> = connection
            .prepare("SELECT name FROM pragma_function_list WHERE type = 's' AND flags & 2048 = 0")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for (name, times) in DATES {
            let (found, dates) = (found.clone(), Connection::open_in_memory()?);
            let flags = FunctionFlags::SQLITE_UTF8
                | FunctionFlags::SQLITE_DETERMINISTIC
                | FunctionFlags::SQLITE_INNOCUOUS;
            connection.create_scalar_function(name, -1, flags, move |call| {
                check(call, times).map_err(|argument| {
                    found.note(format!("{name}() {argument}"));
                    Error::InvalidQuery
                })?;
                compute(&dates, name, call)
            })?;
        }
        let denied = found.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| match context.action {
            AuthAction::Function { function_name: name }
                if varying.contains(name) && !OF_DATA.contains(&name) =>
            {
                denied.note(format!("{name}()"));
                Authorization::Deny
            }
            _ => Authorization::Allow,
        }))?;
        Ok(found)
    }

    fn note(&self, call: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }

    /// Takes the call that failed the latest statement, if one was refused.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Checks that the result of a function of dates depends on its arguments alone.
fn check(call: &Context<'_>, times: &[usize]) -> Result<(), &'static str> {
    let is_one_of = |place: usize, words: &[&str]| {
        let text = (place < call.len()).then(|| call.get_raw(place).as_str().ok()).flatten();
        text.is_some_and(|text| words.iter().any(|word| word.eq_ignore_ascii_case(text)))
    };
    let after = times.last().map_or(0, |last| last + 1);
    // Without a time, the present is meant; a call without a format is an error in any case.
    if call.len() + 1 == after || times.iter().any(|&place| is_one_of(place, &NOW)) {
        return Err("of the present time");
    }
    match (after..call.len()).any(|place| is_one_of(place, &OF_MACHINE)) {
        true => Err("in the time zone of the machine"),
        false => Ok(()),
    }
}

/// Calls a function on a connection that has the original one.
fn compute(connection: &Connection, name: &str, call: &Context<'_>) -> rusqlite::Result<Value> {
    let marks = vec!["?"; call.len()].join(", ");
    let mut statement = connection.prepare_cached(&format!("SELECT {name}({marks})"))?;
    let arguments = (0..call.len()).map(|place| ToSqlOutput::Borrowed(call.get_raw(place)));
    statement.query_row(params_from_iter(arguments), |row| row.get(0))
}
