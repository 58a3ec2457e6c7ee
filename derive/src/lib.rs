//! `#[derive(ShardedField)]` and `#[derive(ShardedSelectable)]` of `diesel_sharded`, which documents them.

#![deny(missing_docs)]

mod ast;
mod attr;
mod expand;
mod saves_totals;
mod selectable;
mod valid;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares sharded fields of a table; documented in `diesel_sharded`.
#[proc_macro_derive(ShardedField, attributes(sharded, diesel))]
pub fn derive_sharded_field(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::derive(&input).into()
}

/// Reads sharded fields as totals; documented in `diesel_sharded`.
#[proc_macro_derive(ShardedSelectable, attributes(sharded, diesel))]
pub fn derive_sharded_selectable(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    selectable::derive(&input).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use syn::DeriveInput;

    use crate::{expand, selectable};

    /// The library is known by one import, under any name.
    #[test]
    fn all_code_uses_the_library_under_its_own_path() {
        for (written, imported) in [
            (
                "#[sharded(crate = own::counters)]",
                "use own :: counters as",
            ),
            (
                "#[sharded(crate = \"self::counters\")]",
                "use self :: counters as",
            ),
            ("", "use :: diesel_sharded as"),
        ] {
            let model = format!(
                "#[diesel(primary_key(a, b))] {written} struct Video {{
                    a: i64, b: String, #[sharded] views: i64, #[sharded(max)] best: i64
                }}"
            );
            let model: DeriveInput = syn::parse_str(&model).unwrap();
            for derive in [expand::derive, selectable::derive] {
                let code = derive(&model).to_string();
                let import = format!("{imported} __diesel_sharded ;");
                assert!(code.contains(&import), "{code}");
                let rest = code.replace(&import, "").replace("__diesel_sharded", "");
                assert!(!rest.contains("diesel_sharded"), "{rest}");
            }
        }
    }

    /// Pieces of `#[sharded(..)]` and `#[diesel(..)]`, and many that belong in neither.
    const PIECES: &[&str] = &[
        "table_name",
        "primary_key",
        "column_name",
        "deserialize_as",
        "select_expression",
        "embed",
        "no_totals",
        "saves_totals",
        "skip_update",
        "sql_type",
        "max",
        "min",
        "shards",
        "crate",
        "crate = own::counters",
        "sharded",
        "=",
        "= =",
        ",",
        "(",
        ")",
        "(id)",
        "(id, views)",
        "()",
        "videos",
        "crate::schema::videos",
        "self",
        "super::a",
        "r#type",
        "\"a; DROP TABLE b --\"",
        "\"\"",
        "\"\\0\"",
        "\"id\"",
        "\"1x\"",
        "\"a b\"",
        "\"😀\"",
        "0",
        "1",
        "128",
        "4097",
        "99999999999999999999999",
        "-1",
        "1_000",
        "0x10",
        "12u8",
        "1.5",
        "'a'",
        "[1, 2]",
        "{}",
        "::",
        "#",
        "!",
        "fn",
        "as",
        "shard",
        "id",
        "views",
        "é",
    ];

    const TYPES: &[&str] = &[
        "i64",
        "i32",
        "f64",
        "String",
        "&'a str",
        "Option<i64>",
        "(i64, i64)",
        "[u8; 16]",
        "dyn Any + Send",
        "fn(i64) -> i64",
        "<A as B>::C",
        "crate::Own",
        "impl A",
        "!",
        "_",
        "Vec<u8>",
        "*const u8",
        "m!()",
        "std::primitive::i64",
    ];

    const NAMES: &[&str] = &[
        "id", "views", "likes", "shard", "r#type", "r#shard", "name", "é", "_a",
    ];

    const STRUCTS: &[&str] = &[
        "Video",
        "A",
        "r#struct",
        "VideoStatistic",
        "É",
        "İ",
        "V_",
        "__",
        "Ⅷ",
    ];

    fn attributes(most: usize) -> impl Strategy<Value = String> {
        let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 0..6);
        let likely = proptest::sample::select(
            &[
                "#[sharded]",
                "#[sharded(shards = 16)]",
                "#[sharded(no_totals)]",
                "#[sharded(max)]",
                "#[sharded(min, sql_type = \"DATE\")]",
                "#[sharded(table_name = \"v`\\\"s\")]",
                "#[sharded(sql_type = \"CHAR(10)\")]",
                "#[diesel(primary_key(id))]",
                "#[diesel(primary_key(id, name))]",
                "#[diesel(table_name = videos)]",
                "#[diesel(column_name = \"views\")]",
                "#[diesel(column_name = id)]",
                "#[diesel(deserialize_as = crate::Own)]",
                "#[diesel(embed)]",
                "#[doc = \"x\"]",
            ][..],
        );
        let attribute = prop_oneof![
            3 => likely.prop_map(str::to_owned),
            1 => (proptest::bool::ANY, pieces).prop_map(|(sharded, pieces)| {
                let name = if sharded { "sharded" } else { "diesel" };
                format!("#[{name}({})]", pieces.join(" "))
            }),
        ];
        proptest::collection::vec(attribute, 0..=most).prop_map(|all| all.join("\n"))
    }

    fn structs() -> impl Strategy<Value = String> {
        let field = (
            attributes(2),
            proptest::sample::select(NAMES),
            proptest::sample::select(TYPES),
        );
        let fields = proptest::collection::vec(field, 0..5);
        let name = proptest::sample::select(STRUCTS);
        let shape = 0..8u8;
        (attributes(3), name, shape, fields).prop_map(|(attributes, name, shape, fields)| {
            let fields = fields
                .iter()
                .enumerate()
                .map(|(i, (attributes, name, ty))| match shape {
                    6 => format!("{attributes} {ty}"),
                    // Mostly fields that may be right.
                    0..4 if i == 0 => "id: i64".to_owned(),
                    0..4 if i == 1 => "#[sharded] views: i64".to_owned(),
                    _ => format!("{attributes} {name}: {ty}"),
                });
            let fields: Vec<String> = fields.collect();
            let fields = fields.join(", ");
            match shape {
                5 => format!("{attributes} enum {name} {{ {name} }}"),
                6 => format!("{attributes} struct {name}({fields});"),
                7 => format!("{attributes} union {name} {{ {fields} }}"),
                _ => format!("{attributes} struct {name}<'a, T> {{ {fields} }}"),
            }
        })
    }

    /// For any attribute contents the derives return code that parses, or an error that tells what is wrong.
    #[test]
    fn hostile_attributes_never_break_the_code() {
        for derive in [expand::derive, selectable::derive] {
            try_hostile_attributes(derive);
        }
    }

    fn try_hostile_attributes(derive: fn(&DeriveInput) -> proc_macro2::TokenStream) {
        let times = std::env::var("HOSTILE").map_or(1, |times| times.parse().unwrap());
        let config = Config {
            cases: 4_000 * times,
            failure_persistence: None,
            ..Config::default()
        };
        let told = std::cell::Cell::new((0, 0, 0));
        let run = TestRunner::new(config).run(&structs(), |text| {
            let (mut refused, mut errors, mut expanded) = told.get();
            match syn::parse_str::<DeriveInput>(&text) {
                Err(_) => refused += 1, // the compiler reports it
                Ok(input) => {
                    let code = derive(&input);
                    let text = code.to_string();
                    let parsed = syn::parse2::<syn::File>(code);
                    prop_assert!(parsed.is_ok(), "{:?} in {}", parsed.err(), text);
                    match text.contains("compile_error !") {
                        true => errors += 1,
                        false => expanded += 1,
                    }
                }
            }
            told.set((refused, errors, expanded));
            Ok(())
        });
        if let Err(error) = run {
            panic!("{error}");
        }
        // Each of the three outcomes occurs.
        let (refused, errors, expanded) = told.get();
        assert!(refused > 0 && errors > 100 && expanded > 100, "{told:?}");
    }
}
