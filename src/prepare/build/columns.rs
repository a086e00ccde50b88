//! What is learnt of a column while its table is read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};

use crate::error::{Context, Error, Result};
use crate::fold::Moments;
use crate::prepare::schema::{Column, Limits};
use crate::prepare::values::{BadValues, Values};
use crate::store::SemanticType;

/// What was learnt of a column.
pub(in crate::prepare) struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// What the schema says of it.
    pub column: Column,
    /// How many values are NULL.
    pub null_count: u64,
    /// The statistics of its semantic type.
    pub summary: Summary,
    trouble: Option<BadValues>,
}

/// Statistics by semantic type, still growing.
pub(in crate::prepare) enum Summary {
    Identifier,
    Numerical(Moments),
    Timestamp { moments: Moments, min: i64, max: i64 },
    Boolean { true_count: u64 },
    Categorical(Dictionary),
    Text,
}

/// The categories of a column, numbered as they come.
#[derive(Default)]
pub(in crate::prepare) struct Dictionary {
    codes: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Dictionary {
    fn code(&mut self, name: &str) -> u32 {
        if let Some(&code) = self.codes.get(name) {
            return code;
        }
        let code = self.names.len() as u32;
        self.names.push(name.into());
        self.codes.insert(name.into(), code);
        code
    }

    /// How many categories there are.
    pub(in crate::prepare) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names in the order of their bytes, and for each code its place in that order: rows in
    /// another order make the same categories.
    pub(in crate::prepare) fn sorted(&self) -> (Vec<&str>, Vec<u32>) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_unstable_by_key(|&code| &self.names[code]);
        let mut places = vec![0; order.len()];
        for (place, &code) in order.iter().enumerate() {
            places[code] = place as u32;
        }
        (order.iter().map(|&code| &*self.names[code]).collect(), places)
    }
}

impl ColumnSummary {
    pub(in crate::prepare) fn new(name: &str, column: Column) -> Self {
        let moments = Moments::default();
        let summary = match column.semantic {
            SemanticType::Identifier | SemanticType::Ignored => Summary::Identifier,
            SemanticType::Numerical => Summary::Numerical(moments),
            SemanticType::Timestamp => Summary::Timestamp { moments, min: i64::MAX, max: i64::MIN },
            SemanticType::Boolean => Summary::Boolean { true_count: 0 },
            SemanticType::Categorical => Summary::Categorical(Dictionary::default()),
            SemanticType::Text => Summary::Text,
        };
        Self { name: name.to_owned(), column, null_count: 0, summary, trouble: None }
    }

    /// Reads a batch of values; what cannot be read is counted, and is NULL until the end of the
    /// table tells of it.
    pub(in crate::prepare) fn read(&mut self, array: &ArrayRef, first_row: u64) -> Result<Values> {
        match Values::read(array, self.column).context(|| self.place())? {
            Ok(values) => Ok(values),
            Err(bad) => {
                let trouble = self.trouble.get_or_insert(BadValues {
                    count: 0,
                    row: first_row + bad.row,
                    ..bad.clone()
                });
                trouble.count += bad.count;
                Ok(Values::nothing(self.column, array.len()))
            }
        }
    }

    /// Takes in a batch; yields what is staged of it. Texts are staged by [`Texts`].
    pub(in crate::prepare) fn take_in(&mut self, values: &Values) -> ArrayRef {
        self.null_count += values.null_count() as u64;
        match (&mut self.summary, values) {
            (Summary::Numerical(moments), Values::Numbers(numbers)) => {
                numbers.iter().flatten().for_each(|number| moments.push(number));
                Arc::new(numbers.clone())
            }
            (Summary::Timestamp { moments, min, max }, Values::Times(times)) => {
                for time in times.iter().flatten() {
                    moments.push(time as f64);
                    (*min, *max) = ((*min).min(time), (*max).max(time));
                }
                Arc::new(times.clone())
            }
            (Summary::Boolean { true_count }, Values::Booleans(truths)) => {
                *true_count += truths.true_count() as u64;
                Arc::new(truths.clone())
            }
            (Summary::Categorical(dictionary), Values::Texts(words)) => {
                let codes = words.iter().map(|word| word.map(|word| dictionary.code(word)));
                Arc::new(codes.collect::<UInt32Array>())
            }
            // Of an identifier only its NULLs matter.
            (_, Values::Texts(words)) => {
                let present = arrow::buffer::BooleanBuffer::new_unset(words.len());
                Arc::new(BooleanArray::new(present, words.logical_nulls()))
            }
            (_, Values::Numbers(_) | Values::Times(_) | Values::Booleans(_)) => {
                unreachable!("values are read by the same semantic type")
            }
        }
    }

    /// The error about the values that could not be read, when there were any.
    pub(in crate::prepare) fn check(&self) -> Result<()> {
        if let Some(bad) = &self.trouble {
            return Err(Error::data(format!(
                "{} {} cannot be read as {}: expected {}, found {:?} in row {}; correct the \
                 data or the column's type",
                bad.count,
                if bad.count == 1 { "value" } else { "values" },
                self.column.semantic,
                bad.expected,
                bad.value,
                bad.row + 1
            ))
            .context(self.place()));
        }
        let Summary::Numerical(moments) = &self.summary else { return Ok(()) };
        let (what, way) = match (moments.mean().is_finite(), moments.std()) {
            (true, std) if std.is_finite() && (std > 0.0 || moments.min() == moments.max()) => {
                return Ok(());
            }
            (true, 0.0) => ("a standard deviation that 64 bits round to 0", "up"),
            _ => ("no finite mean and standard deviation", "down"),
        };
        Err(Error::data(format!(
            "the numbers from {:e} to {:e} have {what}; scale them {way}, or make the column \
             categorical or text",
            moments.min(),
            moments.max()
        ))
        .context(self.place()))
    }

    /// The error about too many categories, as soon as there are, so that memory is not theirs.
    pub(in crate::prepare) fn check_categories(&self, limits: &Limits) -> Result<()> {
        if let Summary::Categorical(dictionary) = &self.summary
            && dictionary.len() > limits.categories as usize
        {
            return Err(Error::limit(format!(
                "{} categories or more, expected at most {}; make the column text, or raise \
                 limits.categories",
                dictionary.len(),
                limits.categories
            ))
            .context(self.place()));
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("column {:?}", self.name)
    }
}
