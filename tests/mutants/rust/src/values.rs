//! What the body of a function is changed into: the simplest values of its return type.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Returns expressions of the return type; some may not compile, and are dropped then.
pub fn values(of: &ReturnType) -> Vec<String> {
    match of {
        ReturnType::Default => vec!["()".into()],
        ReturnType::Type(_, of) => values_of(of),
    }
}

fn values_of(of: &Type) -> Vec<String> {
    match of {
        Type::Tuple(tuple) => tuple_values(&tuple.elems.iter().map(values_of).collect::<Vec<_>>()),
        Type::Array(array) => {
            let of = values_of(&array.elem);
            of.into_iter().map(|value| format!("std::array::from_fn(|_| {value})")).collect()
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(_) => vec!["&mut []".into()],
            Type::Path(path) if path.path.is_ident("str") => texts(""),
            of => borrowed(&values_of(of)),
        },
        Type::Paren(inner) => values_of(&inner.elem),
        Type::Path(path) => path.path.segments.last().map_or_else(Vec::new, |last| {
            named(&last.ident.to_string(), &arguments(&last.arguments))
        }),
        Type::Never(_) | Type::ImplTrait(_) | Type::TraitObject(_) => Vec::new(),
        _ => vec!["Default::default()".into()],
    }
}

fn named(name: &str, of: &[Vec<String>]) -> Vec<String> {
    let inner = of.first().cloned().unwrap_or_default();
    let wrap = |with: &str| inner.iter().map(|v| format!("{with}({v})")).collect::<Vec<_>>();
    match name {
        "bool" => vec!["false".into(), "true".into()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => vec!["0".into(), "1".into()],
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => {
            vec!["0".into(), "1".into(), "-1".into()]
        }
        "f32" | "f64" => vec!["0.0".into(), "1.0".into(), "-1.0".into()],
        "String" => texts(".to_owned()"),
        "Option" => [vec!["None".into()], wrap("Some")].concat(),
        "Result" => wrap("Ok"),
        "Box" | "Arc" | "Rc" | "Mutex" => wrap(&format!("{name}::new")),
        "Cow" => inner.iter().map(|v| format!("std::borrow::Cow::Owned({v}.to_owned())")).collect(),
        "Vec" => {
            let full = inner.iter().map(|value| format!("vec![{value}]"));
            std::iter::once("vec![]".to_owned()).chain(full).collect()
        }
        _ => vec!["Default::default()".into()],
    }
}

fn texts(end: &str) -> Vec<String> {
    vec![format!("\"\"{end}"), format!("\"xyzzy\"{end}")]
}

fn borrowed(of: &[String]) -> Vec<String> {
    of.iter().map(|value| format!("Box::leak(Box::new({value}))")).collect()
}

/// One value after the other in each place, the others at their first.
fn tuple_values(of: &[Vec<String>]) -> Vec<String> {
    let Some(first) = of.iter().map(|values| values.first()).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    let tuple = |values: &[&String]| {
        let parts: String = values.iter().map(|value| format!("{value}, ")).collect();
        format!("({parts})")
    };
    let mut found = vec![tuple(&first)];
    for (at, values) in of.iter().enumerate() {
        for value in &values[1..] {
            let mut changed = first.clone();
            changed[at] = value;
            found.push(tuple(&changed));
        }
    }
    found
}

fn arguments(of: &PathArguments) -> Vec<Vec<String>> {
    let PathArguments::AngleBracketed(of) = of else { return Vec::new() };
    let values = of.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(of) => Some(values_of(of)),
        _ => None,
    });
    values.collect()
}
