//! Edits that make a valid schema contradict itself, each with its message.

use super::*;

/// Replacements in the valid schema, and their messages.
const BAD: &[(&str, &str, &str)] = &[
    // Columns that are known later, and hidden ones.
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = { delay = \"0 s\" } }",
        "table \"races\": column \"laps\": known: expected a delay longer than 0, found 0; \
         remove known",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = { at = \"finish\" } }",
        "table \"races\": column \"laps\": known: at: there is no column \"finish\" in \
         columns; expected one of: \"id\", \"date\", \"laps\", \"lap/h\"",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = { at = \"laps\" } }",
        "table \"races\": column \"laps\": known: at: expected the column of the times at \
         which these values are known, found the column itself, of type numerical; name that \
         column, or set known = { delay = \"...\" }",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = { at = \"id\" } }",
        "table \"races\": column \"laps\": known: at: column \"id\": expected type timestamp \
         or ignored, found identifier; give the column this type, or choose another",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = { dealy = \"1 day\" } }",
        "line 8, column 91: table \"races\": expected `delay` or `at`, found `dealy`; did you \
         mean `delay`?",
    ),
    (
        "date = \"timestamp\"",
        "date = { type = \"timestamp\", known = { delay = \"1 day\" } }",
        "table \"races\": column \"date\": known: the column is the time of the table, which \
         every context tells; set a delay in the table's time",
    ),
    (
        "old = \"ignored\"",
        "old = { type = \"ignored\", known = { delay = \"1 day\" } }",
        "table \"drivers\": column \"old\": known: expected a column that is a cell, found an \
         ignored one; remove known",
    ),
    (
        "name = \"text\"",
        "name = { type = \"text\", known = { delay = \"1 day\" } }",
        "table \"drivers\": column \"name\": known: expected a table with a time, which the \
         delay follows, found \"drivers\", which has none; give the table a time, or name a \
         column of times with known = { at = \"...\" }",
    ),
    (
        "columns = { raceId = \"identifier\", driverId = \"identifier\", won",
        "columns = { raceId = { type = \"identifier\", known = { delay = \"1 day\" } }, \
         driverId = \"identifier\", won",
        "table \"results\": column \"raceId\": known: the column is part of a key or \
         reference, so the links of a row tell its value from the row's own time on; read the \
         source as two tables, a second one with a time and source = \"results\" for what is \
         known later",
    ),
    (
        "won = \"boolean\"",
        "won = { type = \"boolean\", known = { at = \"seen\" } }",
        "aggregate of \"results\" by \"driverId\": column \"won\": expected a column that is \
         known with its row, found one that is known at \"seen\"; leave it out, or read the \
         source as two tables, a second one for what is known later",
    ),
    (
        "won = \"boolean\"",
        "won = { type = \"boolean\", known = { delay = \"1 day\" } }",
        "summary \"results by year and driverId\": column \"won\": expected a column that is \
         known with its row, found one that is known 1 day after its row; leave it out, or \
         read the source as two tables, a second one for what is known later",
    ),
    (
        "column = \"won\" }",
        "column = \"won\", hide = \"win\" }",
        "task \"results.won\": hide: there is no column \"win\" in columns; did you mean \
         \"won\"? spell both as the source does",
    ),
    (
        "column = \"won\" }",
        "column = \"won\", hide = \"won\" }",
        "task \"results.won\": hide: column \"won\" is the target, which is hidden; remove it",
    ),
    (
        "column = \"won\" }",
        "column = \"won\", hide = [\"seen\", \"driverId\"] }",
        "task \"results.won\": hide: column \"driverId\" of table \"results\" is part of a \
         key or reference, so the links of a row reveal its value; remove it from the list",
    ),
    // Values of another kind.
    (
        "name = \"stops\"\ntime = { through = \"raceId+driverId\" }",
        "name = \"stops\"\ntime = \"lap\"",
        "line 25, column 8: table \"stops\": time: expected { column = \"...\" } or { through = \
         \"...\" }, found string \"lap\"; write { column = \"lap\" }",
    ),
    (
        "references = [{ columns = [\"raceId\", \"driverId\"], to = \"results\" }]",
        "references = [\"raceId\"]",
        "line 27, column 15: table \"stops\": expected { columns = \"...\", to = \"...\" }, found string \
         \"raceId\"; write { columns = \"raceId\", to = \"...\" } with the table that it refers to",
    ),
    (
        "references = [{ columns = [\"raceId\", \"driverId\"], to = \"results\" }]",
        "references = \"raceId\"",
        "line 27, column 14: table \"stops\": references: expected a list in square brackets, found string \
         \"raceId\"; write references = [{ columns = \"...\", to = \"...\" }]",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "cell = \"won\"",
        "line 37, column 8: task \"results.won\": cell: expected { table = \"...\", column = \"...\" }, found \
         string \"won\"; write { table = \"...\", column = \"won\" }",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "[[task.predict]]\nanchor = \"drivers\"",
        "line 37, column 1: task \"results.won\": expected [task.predict] in single brackets, because there \
         is one, found [[task.predict]]; write [task.predict]",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "[[tasks]]\nname = \"x\"",
        "line 37, column 3: expected one of the sections [[table]], [[task]], [[aggregate]], \
         [[summary]], [limits], [events], found [[tasks]]; write [[task]]",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "[task]\nname = \"x\"",
        "line 37, column 1: expected [[task]] in double brackets, because there may be several, found \
         [task]; write [[task]]",
    ),
    (
        "\n[[table]]\nname = \"races\"",
        "limits = { categories = \"many\" }\n[[table]]\nname = \"races\"",
        "line 3, column 25: categories: expected a whole number from 0 to 4294967295, found string \"many\"; write it \
         without quotes and without a point",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = \"1 day\" }",
        "line 8, column 89: table \"races\": known: expected { delay = \"...\" } or { at = \"...\" }, found \
         \"1 day\"; write { delay = \"1 day\" }",
    ),
    (
        "laps = \"numerical\"",
        "laps = { type = \"numerical\", known = {} }",
        "line 8, column 89: table \"races\": known: expected one of { delay = \"...\" } and { at = \
         \"...\" }, found neither; give one",
    ),
    (
        "date = \"timestamp\", laps",
        "date = { type = \"timestamp\", known = { at = \"date\" } }, laps",
        "table \"races\": column \"date\": known: the column is the time of the table, which \
         every context tells; set a delay in the table's time",
    ),
    (
        "seen = { type = \"timestamp\", unit = \"ms\" }",
        "seen = { type = \"timestamp\", unit = \"ms\", known = { at = \"seen\" } }",
        "table \"results\": column \"seen\": known: at: expected another column of times, found the \
         column itself; a time is hidden until it has come in any case: remove known",
    ),
    // Spelling.
    (
        "database = \"league\"",
        "databse = \"league\"",
        "line 2, column 1: expected one of the fields `database`, `statistics_until`, `limits`, `events`, `table`, \
         `aggregate`, `summary`, `task`, found `databse`; did you mean `database`?",
    ),
    (
        "old = \"ignored\"",
        "old = \"ignord\"",
        "line 14, column 53: table \"drivers\": old: expected one of `identifier`, \
         `numerical`, `timestamp`, `boolean`, `categorical`, `text`, `ignored`, found \
         `ignord`; did you mean `ignored`?",
    ),
    (
        "name = \"stops\"",
        "name = \"stops\"\ncolums = {}",
        "line 25, column 1: table \"stops\": expected one of the fields `name`, `source`, \
         `key`, `time`, `columns`, `references`, found `colums`; did you mean `columns`?",
    ),
    (
        "unit = \"ms\"",
        "unit = \"ns\"",
        "line 20, column 114: table \"results\": unit: expected one of `s`, `ms`, `us`, \
         `yyyymmdd`, `month`, `quarter`, `season`, `year`, found `ns`; correct it",
    ),
    (
        "unit = \"ms\"",
        "unit = \"ms\", end = true",
        "line 20, column 85: table \"results\": expected a unit with end = true, one of \
         yyyymmdd, season, month, quarter, year; other times have no end: set a delay in the \
         table's time",
    ),
    (
        "{ type = \"timestamp\", unit = \"ms\" }",
        "{ type = \"numerical\", unit = \"ms\" }",
        "line 20, column 85: table \"results\": expected type timestamp for a column with a \
         unit, found numerical",
    ),
    (
        "lap = \"numerical\" }\nreferences",
        "lap = 3 }\nreferences",
        "line 26, column 67: table \"stops\": lap: expected a semantic type such as \
         \"numerical\", or { type = \"timestamp\", unit = \"s\" }, found integer `3`",
    ),
    (
        "name = \"races\"\nkey = \"id\"",
        "name = \"races\"\nkey = 7",
        "line 6, column 7: table \"races\": key: expected a column name or a list of column \
         names, found integer `7`",
    ),
    (
        "delay = \"1 day\"",
        "delay = \"1 fortnight\"",
        "line 19, column 38: table \"results\": expected a time such as \"30 days\", \"12 \
         hours\", \"30 minutes\", \"90 s\" or \"5 ms\", found \"1 fortnight\"",
    ),
    (
        "delay = \"1 day\"",
        "delay = 3",
        "line 19, column 38: table \"results\": delay: expected a time such as \"30 days\", \
         \"12 hours\", \"30 minutes\", \"90 s\" or \"5 ms\", found integer `3`",
    ),
    (
        "delay = \"1 day\"",
        "delay = \"9999999999 weeks\"",
        "line 19, column 38: table \"results\": expected at most 100 years (\"36525 days\"), \
         found \"9999999999 weeks\"; correct it",
    ),
    ("name = \"top3\"\n", "", "line 39, column 1: the field `name` is missing; add name = ..."),
    (
        "name = \"top3\"\n",
        "name = \"top3\"\nhorizon = \"30 days\"\n",
        "line 41, column 1: task \"top3\": `horizon` belongs into `derived`: derived = { \
         horizon = ... }",
    ),
    // Limits.
    (
        "\n[[table]]\nname = \"races\"",
        "limits = { unresolved_share = 1.5 }\n[[table]]\nname = \"races\"",
        "limits: expected unresolved_share from 0 to 1, found 1.5",
    ),
    (
        "\n[[table]]\nname = \"races\"",
        "limits = { unresolved_share = nan }\n[[table]]\nname = \"races\"",
        "limits: expected unresolved_share from 0 to 1, found NaN",
    ),
    (
        "\n[[table]]\nname = \"races\"",
        "limits = { categories = 0 }\n[[table]]\nname = \"races\"",
        "limits: expected categories of at least 1, found 0",
    ),
    // Names.
    (
        "name = \"stops\"",
        "name = \"results\"",
        "two tables are named \"results\"; rename one of them",
    ),
    (
        "name = \"stops\"",
        "name = \"Results\"",
        "tables \"results\" and \"Results\" differ only in case, which some file systems ignore; \
         rename one of them",
    ),
    (
        "name = \"top3\"",
        "name = \"results.won\"",
        "two tasks are named \"results.won\"; rename one of them",
    ),
    (
        "name = \"stops\"",
        "name = \"../stops\"",
        "table \"../stops\": the name begins with a dot, so it cannot name a file of the store; \
         give the table another name and set source = \"...\"",
    ),
    (
        "name = \"stops\"",
        "name = \"a/stops\"",
        "table \"a/stops\": the name contains '/', so it cannot name a file of the store; give the \
         table another name and set source = \"...\"",
    ),
    (
        "name = \"stops\"",
        "name = 'a\\stops'",
        "table \"a\\\\stops\": the name contains '\\\\', so it cannot name a file of the store; \
         give the table another name and set source = \"...\"",
    ),
    (
        "name = \"stops\"",
        "name = \"a\\u0000stops\"",
        "table \"a\\0stops\": the name contains '\\0', so it cannot name a file of the store; give \
         the table another name and set source = \"...\"",
    ),
    (
        "name = \"stops\"",
        "name = \"\"",
        "table \"\": the name is empty, so it cannot name a file of the store; give the table \
         another name and set source = \"...\"",
    ),
    (
        "name = \"top3\"",
        "name = \"top/3\"",
        "task \"top/3\": the name contains '/', so it cannot name a file of the store; give the \
         task another name",
    ),
    // Columns.
    (
        "key = [\"raceId\", \"driverId\"]",
        "key = [\"raceID\", \"driverId\"]",
        "table \"results\": key: there is no column \"raceID\" in columns; did you mean \
         \"raceId\"? spell both as the source does",
    ),
    (
        "key = [\"raceId\", \"driverId\"]",
        "key = [\"raceId\", \"raceId\"]",
        "table \"results\": key: column \"raceId\" is named twice; remove one",
    ),
    (
        "{ columns = \"raceId\", to",
        "{ columns = \"zzzzzzzz\", to",
        "table \"results\": reference \"zzzzzzzz\": there is no column \"zzzzzzzz\" in columns; \
         expected one of: \"raceId\", \"driverId\", \"won\", \"seen\"",
    ),
    // References.
    (
        "to = \"races\"",
        "to = \"race\"",
        "table \"results\": reference \"raceId\": there is no table \"race\"; did you mean \
         \"races\"?",
    ),
    (
        "{ columns = \"driverId\", to",
        "{ columns = \"raceId\", to",
        "table \"results\": two references have the columns \"raceId\"; remove one of them",
    ),
    (
        "[{ columns = [\"raceId\", \"driverId\"], to",
        "[{ columns = [], to",
        "table \"stops\": reference \"\": expected at least one column, found none",
    ),
    (
        "to = \"drivers\"",
        "to = \"stops\"",
        "table \"results\": reference \"driverId\": table \"stops\" has no key; give it a key, or \
         name the columns with to_columns",
    ),
    (
        "to = \"drivers\"",
        "to = \"drivers\", to_columns = \"nam\"",
        "table \"results\": reference \"driverId\": to_columns of \"drivers\": there is no column \
         \"nam\" in columns; did you mean \"name\"? spell both as the source does",
    ),
    (
        "{ columns = [\"raceId\", \"driverId\"], to",
        "{ columns = \"raceId\", to",
        "table \"stops\": reference \"raceId\": expected 2 column(s), one for each of \"raceId\", \
         \"driverId\" in table \"results\", found 1; correct columns or to_columns",
    ),
    // Time.
    (
        "time = { column = \"date\" }",
        "time = { column = \"laps\" }",
        "table \"races\": time: column \"laps\": expected type timestamp or ignored, found \
         numerical; give the column this type, or choose another",
    ),
    (
        "time = { column = \"date\" }",
        "time = { column = \"dat\" }",
        "table \"races\": time: there is no column \"dat\" in columns; did you mean \"date\"? \
         spell both as the source does",
    ),
    (
        "time = { column = \"date\" }",
        "time = { column = \"date\", through = \"x\" }",
        "table \"races\": time: expected either column or through, found both",
    ),
    (
        "time = { column = \"date\" }",
        "time = { delay = \"1 day\" }",
        "table \"races\": time: expected column = \"...\" or through = \"...\", found neither",
    ),
    (
        "time = { through = \"raceId\",",
        "time = { through = \"race\",",
        "table \"results\": time: there is no reference \"race\"; expected one of: \"raceId\", \
         \"driverId\"",
    ),
    (
        "time = { through = \"raceId\",",
        "time = { through = \"driverId\",",
        "table \"results\": time: \"results\" inherits its time through \"driverId\" from \
         \"drivers\", which has no time; give the parent a time, or remove the time of this table",
    ),
    // Tasks.
    (
        "cell = { table = \"results\", column = \"won\" }",
        "",
        "task \"results.won\": expected cell = { table, column }, derived = { anchor, source, key, \
         time, target, type } or predict = { anchor, what, of, horizon, train_until, val_until }, \
         found none of them",
    ),
    (
        "name = \"top3\"",
        "name = \"top3\"\ncell = { table = \"results\", column = \"won\" }",
        "task \"top3\": expected either cell or derived, found both",
    ),
    (
        "column = \"won\"",
        "column = \"one\"",
        "task \"results.won\": table \"results\": there is no column \"one\" in columns; expected \
         one of: \"raceId\", \"driverId\", \"won\", \"seen\"",
    ),
    (
        "column = \"won\"",
        "column = \"raceId\"",
        "task \"results.won\": column \"raceId\" of \"results\": expected a numerical, boolean, \
         categorical or timestamp target, found identifier",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "cell = { table = \"drivers\", column = \"name\" }",
        "task \"results.won\": column \"name\" of \"drivers\": expected a numerical, boolean, \
         categorical or timestamp target, found text",
    ),
    (
        "cell = { table = \"results\", column = \"won\" }",
        "cell = { table = \"races\", column = \"date\" }",
        "task \"results.won\": column \"date\" is the time of table \"races\", which every context \
         contains; predict another column",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = [\"30 days\", \"always\"]",
        "line 33, column 11: aggregate of \"results\": expected a window such as \"30 days\", \
         \"12 hours\" or \"ever\", found \"always\"",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = [\"1 month\"]",
        "line 33, column 11: aggregate of \"results\": expected a window such as \"30 days\", \
         \"12 hours\" or \"ever\", found \"1 month\"; a month has no fixed length, write \
         days: \"30 days\"",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = \"30 days\"",
        "line 33, column 11: aggregate of \"results\": windows: expected a list in square \
         brackets, found string \"30 days\"",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = []",
        "aggregate of \"results\" by \"driverId\": expected at least one window, found none; \"ever\" \
         means all children",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = [\"30 days\", \"720 hours\"]",
        "aggregate of \"results\" by \"driverId\": the window \"30 days\" is listed twice; remove one",
    ),
    (
        "windows = [\"30 days\", \"ever\"]",
        "windows = [\"0 days\"]",
        "aggregate of \"results\" by \"driverId\": expected windows longer than 0, found \"0 us\"",
    ),
    (
        "reference = \"driverId\"",
        "reference = \"driver\"",
        "aggregate of \"results\" by \"driver\": there is no reference \"driver\"; did you mean \
         \"driverId\"?",
    ),
    (
        "columns = \"won\"\n",
        "columns = [\"won\", \"woon\"]\n",
        "aggregate of \"results\" by \"driverId\": there is no column \"woon\" in columns; did you \
         mean \"won\"? spell both as the source does",
    ),
    (
        "columns = \"won\"\n",
        "columns = \"seen\"\n",
        "aggregate of \"results\" by \"driverId\": column \"seen\": expected a numerical or boolean \
         column, found timestamp; give the column such a type, or leave it out",
    ),
    (
        "[[aggregate]]",
        "[[aggregate]]\ntable = \"results\"\nreference = \"driverId\"\n[[aggregate]]",
        "aggregate of \"results\" by \"driverId\": the schema has it twice; put all columns and \
         windows into one",
    ),
    (
        "table = \"results\"\nreference = \"driverId\"\ncolumns = \"won\"",
        "table = \"stop\"\nreference = \"driverId\"\ncolumns = \"won\"",
        "aggregate of \"stop\" by \"driverId\": there is no table \"stop\"; did you mean \"stops\"?",
    ),
    (
        "table = \"results\"\nreference = \"driverId\"\ncolumns = \"won\"",
        "table = \"top3 labels\"\nreference = \"driverId\"\ncolumns = \"top3\"",
        "aggregate of \"top3 labels\" by \"driverId\": there is no table \"top3 labels\", because \
         the task \"top3\" has no horizon; add one to its [task.derived], such as horizon = \
         \"30 days\"",
    ),
    (
        "time = \"obs\", target = \"top3\", type = \"boolean\" }",
        "horizon = \"1 day\", target = \"top3\", type = \"boolean\" }\n\
         [[aggregate]]\ntable = \"top3 labels\"\nreference = \"driverId\"\ncolumns = \"top3\"",
        "aggregate of \"top3 labels\" by \"driverId\": there is no table \"top3 labels\", because \
         the task \"top3\" has no time; add one to its [task.derived], such as time = \
         \"the column of the observation time\"",
    ),
    (
        "period = \"year\"",
        "period = \"decade\"",
        "line 46, column 10: summary of \"results\": period: expected one of `day`, `week`, \
         `month`, `quarter`, `year`, found `decade`; correct it",
    ),
    (
        "period = \"year\"\nby",
        "periods = \"year\"\nby",
        "line 46, column 1: summary of \"results\": expected one of the fields `table`, \
         `columns`, `period`, `by`, found `periods`; did you mean `period`?",
    ),
    (
        "period = \"year\"\nby = \"driverId\"",
        "by = \"driverId\"",
        "line 43, column 1: summary of \"results\": the field `period` is missing; add period \
         = ...",
    ),
    (
        "by = \"driverId\"",
        "by = \"driver\"",
        "summary \"results by year and driver\": by: there is no reference \"driver\"; did you mean \
         \"driverId\"?",
    ),
    (
        "[[summary]]\ntable = \"results\"",
        "[[summary]]\ntable = \"result\"",
        "summary \"result by year and driverId\": there is no table \"result\"; did you mean \
         \"results\"?",
    ),
    (
        "columns = [\"won\"]\nperiod",
        "columns = \"seen\"\nperiod",
        "summary \"results by year and driverId\": column \"seen\": expected a numerical or boolean \
         column, found timestamp; give the column such a type, or leave it out",
    ),
    (
        "columns = [\"won\"]\nperiod",
        "columns = [\"won\", \"won\"]\nperiod",
        "summary \"results by year and driverId\": column \"won\" is named twice; remove one",
    ),
    (
        "columns = [\"won\"]\nperiod",
        "columns = \"woon\"\nperiod",
        "summary \"results by year and driverId\": there is no column \"woon\" in columns; did you \
         mean \"won\"? spell both as the source does",
    ),
    (
        "[[summary]]",
        "[[summary]]\ntable = \"results\"\nperiod = \"year\"\nby = \"driverId\"\n[[summary]]",
        "summary \"results by year and driverId\": the schema has this summary twice; \
         put all columns into one of them",
    ),
    (
        "[[summary]]",
        "[[summary]]\ntable = \"drivers\"\nperiod = \"year\"\n[[summary]]",
        "summary \"drivers by year\": expected a table with a time, found \"drivers\", which has \
         none; give the table a time",
    ),
    (
        "[[summary]]",
        "[[summary]]\ntable = \"results by year and driverId\"\nperiod = \"year\"\n[[summary]]",
        "summary \"results by year and driverId by year\": expected a table of the source or of \
         labels, found \"results by year and driverId\", which is a summary itself; name the table that \
         it summarises",
    ),
    (
        "name = \"stops\"",
        "name = \"Results by year and driverid\"",
        "summary \"results by year and driverId\": there is a table \"Results by year and driverid\" \
         already; rename that table",
    ),
    (
        "name = \"stops\"",
        "name = \"results by year and driverId\"",
        "summary \"results by year and driverId\": there is a table \"results by year and driverId\" \
         already; rename that table",
    ),
    (
        "type = \"boolean\"",
        "type = \"text\"",
        "task \"top3\": target \"top3\": expected a numerical, boolean, categorical or timestamp \
         target, found text",
    ),
    (
        "source = \"task_top3\", ",
        "",
        "task \"top3\": expected source = \"...\" or sql = \"...\", found neither",
    ),
    (
        "source = \"task_top3\", ",
        "source = \"task_top3\", sql = \"select 1\", ",
        "task \"top3\": expected either source or sql, found both",
    ),
    (
        "anchor = \"drivers\"",
        "anchor = \"stops\"",
        "task \"top3\": anchor \"stops\" has no key, so its rows cannot be looked up; give the \
         table a key",
    ),
    (
        "anchor = \"drivers\"",
        "anchor = \"results\"",
        "task \"top3\": expected 2 key column(s), one for each of \"raceId\", \"driverId\" in \
         table \"results\", found 1",
    ),
    (
        "time = \"obs\", ",
        "",
        "task \"top3\": expected an observation time, found none; name its column with time = \
         \"...\", or set sees_everything = true",
    ),
];

#[test]
fn every_contradiction_has_its_message() {
    let mut wrong = Vec::new();
    for (good, bad, message) in BAD {
        assert_eq!(GOOD.matches(good).count(), 1, "{good:?} must occur once in the valid schema");
        let found = Schema::parse(&GOOD.replace(good, bad));
        let found = found.map_or_else(|e| e.to_string(), |_| "accepted".into());
        if found != *message {
            wrong.push(format!("for {bad:?}\n  expected {message}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_task_is_called_as_a_pool() {
    let text = GOOD.replace("name = \"top3\"", "name = \"pool:results\"");
    assert_ne!(text, GOOD);
    let error = Schema::parse(&text).unwrap_err().to_string();
    assert!(error.contains("expected a name that does not begin with \"pool:\""), "{error}");
}

/// Under a wrong header, fields of two sections meet in one, further down.
#[test]
fn a_wrong_header_is_named_where_it_stands() {
    let table = |header: &str| format!("{header}\nname = \"a\"\n[table.columns]\nx = \"text\"\n");
    let task = |header: &str| {
        format!("{header}\nname = \"b\"\n[task.cell]\ntable = \"a\"\ncolumn = \"x\"\n")
    };
    let sections = "[[table]], [[task]], [[aggregate]], [[summary]], [limits], [events]";
    for (parts, line, message) in [
        (
            [table("[[tables]]"), table("[[table]]")],
            2,
            format!("expected one of the sections {sections}, found [[tables]]; write [[table]]"),
        ),
        (
            [table("[[table]]"), table("[[rows]]")],
            6,
            format!("expected one of the sections {sections}, found [[rows]]; remove it"),
        ),
        (
            [task("[[task]]"), task("[task]")],
            7,
            "expected [[task]] in double brackets, because there may be several, found [task]; write \
             [[task]]"
                .to_owned(),
        ),
    ] {
        let text = format!("database = \"x\"\n{}{}", parts[0], parts[1]);
        let found = Schema::parse(&text).unwrap_err().to_string();
        assert_eq!(found, format!("line {line}, column 1: {message}"));
    }
}
