//! Items as one line of text.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Meta, Visibility};

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether one of the attributes is `#[doc(name)]`.
pub fn is_doc(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("doc") => list.tokens.to_string() == name,
        _ => false,
    })
}

/// Whether one of the attributes is `#[cfg(name)]`.
pub fn is_cfg(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == name || condition.starts_with("all (test") && name == "test"
        }
        _ => false,
    })
}

/// The tokens with a space only where one is read: `fn of<C: Column>(column: C) -> Self`.
pub fn line(item: impl ToTokens) -> String {
    let mut text = String::new();
    write(item.to_token_stream(), &mut text);
    for (written, read) in [
        (" ,", ","),
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" : ", ": "),
        (" ;", ";"),
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("> (", ">("),
        ("& ", "&"),
        ("- >", " ->"),
        ("->", " ->"),
        ("  ->", " ->"),
        (":<", ": <"),
        (":: <", "::<"),
        ("' ", "'"),
        ("? ", "?"),
        (",>", ">"),
        (",)", ")"),
    ] {
        text = text.replace(written, read);
    }
    text.trim().trim_end_matches(',').to_owned()
}

fn write(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                let called = text.ends_with("> ")
                    || text.chars().rev().nth(1).is_some_and(char::is_alphanumeric);
                if called && group.delimiter() == Delimiter::Parenthesis {
                    text.truncate(text.trim_end().len());
                }
                text.push_str(open);
                write(group.stream(), text);
                text.truncate(text.trim_end().len());
                text.push_str(close);
                text.push(' ');
            }
            TokenTree::Punct(punct) => {
                text.push(punct.as_char());
                if punct.spacing() == proc_macro2::Spacing::Alone {
                    text.push(' ');
                }
            }
            token => {
                text.push_str(&token.to_string());
                text.push(' ');
            }
        }
    }
}
