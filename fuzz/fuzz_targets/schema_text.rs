//! Any text, parsed as a schema, gives an error or a schema that passes its own check.

#![no_main]

use headwater::prepare::schema::Schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(schema) = Schema::parse(text) {
        schema.check().expect("a parsed schema is checked");
    }
});
