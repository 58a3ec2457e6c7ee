//! The attributes as the application wrote them: `#[sharded(..)]`, and the parts of `#[diesel(..)]` that matter here.

use proc_macro2::{Span, TokenTree};
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Ident, LitInt, LitStr, Meta, Path, Result, Token, Type, parenthesized,
};

/// `#[sharded(schema = .., table_name = .., shards = .., crate = .., no_totals, saves_totals)]` on the struct.
#[derive(Default)]
pub struct TableAttrs {
    /// The schema of the `table!` and of the shards table.
    pub schema: Option<LitStr>,
    pub shards_table: Option<LitStr>,
    pub shards: Option<LitInt>,
    /// The path of `diesel_sharded`, if it is not its own name.
    pub library: Option<Path>,
    /// The span of `no_totals`, if it is there.
    pub no_totals: Option<Span>,
    /// The span of `saves_totals`, if it is there.
    pub saves_totals: Option<Span>,
    /// `#[diesel(table_name = ..)]`
    pub table: Option<Path>,
    /// `#[diesel(primary_key(..))]`
    pub primary_key: Option<Vec<Ident>>,
}

/// `#[sharded]`, `#[sharded(max)]`, `#[sharded(min)]` or `#[sharded(sql_type = "..")]` on a field.
#[derive(Default)]
pub struct FieldAttrs {
    /// The span of `#[sharded]` without arguments, if it is there.
    pub sharded: Option<Span>,
    /// `max` or `min`, with its span.
    pub peak: Option<Ident>,
    pub sql_type: Option<LitStr>,
    /// `#[diesel(column_name = ..)]`
    pub column: Option<Ident>,
    /// Whether `#[diesel(select_expression = ..)]` or `#[diesel(embed)]` determines what is read.
    pub says_what_is_read: bool,
    /// `#[diesel(deserialize_as = ..)]`
    pub deserialize_as: Option<Type>,
    /// `#[diesel(skip_update)]`
    pub skip_update: bool,
}

impl TableAttrs {
    pub fn read(attrs: &[Attribute]) -> Result<Self> {
        let mut read = TableAttrs::default();
        for attr in attrs {
            if attr.path().is_ident("sharded") {
                if let Meta::Path(path) = &attr.meta {
                    let message = "`#[sharded]` without arguments stands on a field; on the struct, write \
                                   `#[sharded(table_name = .., shards = ..)]` or leave it out";
                    return Err(Error::new_spanned(path, message));
                }
                attr.parse_nested_meta(|meta| {
                    if meta.path.is_ident("table_name") {
                        set(&mut read.shards_table, meta.value()?.call(name)?, &meta.path)
                    } else if meta.path.is_ident("schema") {
                        set(&mut read.schema, meta.value()?.call(name)?, &meta.path)
                    } else if meta.path.is_ident("shards") {
                        let shards: LitInt = meta.value()?.parse()?;
                        set(&mut read.shards, shards, &meta.path)
                    } else if meta.path.is_ident("crate") {
                        let library = match meta.value()? {
                            value if value.peek(LitStr) => value.parse::<LitStr>()?.parse_with(Path::parse_mod_style)?,
                            value => value.call(Path::parse_mod_style)?,
                        };
                        set(&mut read.library, library, &meta.path)
                    } else if let Some(no_totals) = meta.path.get_ident().filter(|name| *name == "no_totals") {
                        set(&mut read.no_totals, no_totals.span(), &meta.path)
                    } else if let Some(saves_totals) = meta.path.get_ident().filter(|name| *name == "saves_totals") {
                        set(&mut read.saves_totals, saves_totals.span(), &meta.path)
                    } else {
                        let message = "unknown attribute: `#[sharded(..)]` on a struct takes `schema`, `table_name`, `shards`, \
                                       `crate`, `no_totals` and `saves_totals`";
                        Err(Error::new_spanned(&meta.path, message))
                    }
                })?;
            } else if attr.path().is_ident("diesel") {
                each_diesel_item(attr, |name, input| {
                    if name == "table_name" && input.parse::<Option<Token![=]>>()?.is_some() {
                        read.table = Some(input.call(Path::parse_mod_style)?);
                    } else if name == "primary_key" && input.peek(syn::token::Paren) {
                        let columns;
                        parenthesized!(columns in input);
                        let columns = Punctuated::<Ident, Token![,]>::parse_terminated(&columns)?;
                        read.primary_key = Some(columns.into_iter().collect());
                    }
                    Ok(())
                })?;
            }
        }
        Ok(read)
    }
}

impl FieldAttrs {
    pub fn read(attrs: &[Attribute]) -> Result<Self> {
        let mut read = FieldAttrs::default();
        for attr in attrs {
            if attr.path().is_ident("sharded") {
                if let Meta::Path(path) = &attr.meta {
                    let span = path.get_ident().map_or_else(Span::call_site, Ident::span);
                    set(&mut read.sharded, span, path)?;
                    continue;
                }
                attr.parse_nested_meta(|meta| {
                    if meta.path.is_ident("sql_type") {
                        let sql_type: LitStr = meta.value()?.parse()?;
                        set(&mut read.sql_type, sql_type, &meta.path)
                    } else if let Some(peak) = meta.path.get_ident().filter(|name| *name == "max" || *name == "min") {
                        match read.peak.replace(peak.clone()) {
                            Some(other) if other != *peak => {
                                let message = "a field keeps its greatest value or its least one: write either `max` or `min`";
                                Err(Error::new_spanned(peak, message))
                            }
                            Some(_) => Err(Error::new_spanned(peak, format!("`{peak}` is given twice"))),
                            None => Ok(()),
                        }
                    } else {
                        let message = "unknown attribute: on a field, write `#[sharded]`, `#[sharded(max)]`, `#[sharded(min)]`, or \
                                       `#[sharded(sql_type = \"..\")]` for the type of its column in the shards table";
                        Err(Error::new_spanned(&meta.path, message))
                    }
                })?;
            } else if attr.path().is_ident("diesel") {
                each_diesel_item(attr, |name, input| {
                    if name == "column_name" && input.parse::<Option<Token![=]>>()?.is_some() {
                        read.column = Some(match input.peek(LitStr) {
                            true => input.parse::<LitStr>()?.parse()?,
                            false => input.parse()?,
                        });
                    } else if name == "deserialize_as"
                        && input.parse::<Option<Token![=]>>()?.is_some()
                    {
                        // If this is not a type, Diesel reports the error.
                        read.deserialize_as = input.parse().ok();
                    } else if name == "select_expression" || name == "embed" {
                        read.says_what_is_read = true;
                    } else if name == "skip_update" {
                        read.skip_update = true;
                    }
                    Ok(())
                })?;
            }
        }
        match (read.sharded, &read.peak) {
            (Some(_), Some(peak)) => {
                let message = format!(
                    "a field is either counted or keeps a value: write `#[sharded]` or `#[sharded({peak})]`"
                );
                Err(Error::new_spanned(peak, message))
            }
            _ => Ok(read),
        }
    }
}

impl FieldAttrs {
    /// The span of `#[sharded]`, `max` or `min`, if the field has one of these. An SQL type alone does not count.
    pub fn sharded(&self) -> Option<Span> {
        self.sharded.or_else(|| self.peak.as_ref().map(Ident::span))
    }
}

fn set<T>(slot: &mut Option<T>, value: T, path: &Path) -> Result<()> {
    if slot.replace(value).is_some() {
        let name = path
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default();
        return Err(Error::new_spanned(path, format!("`{name}` is given twice")));
    }
    Ok(())
}

/// A table's or schema's name: an identifier, or a string for any other name.
fn name(input: ParseStream) -> Result<LitStr> {
    if input.peek(LitStr) {
        return input.parse();
    }
    let name: Ident = input.parse()?;
    Ok(LitStr::new(&unraw(&name), name.span()))
}

/// An identifier's text without `r#`.
pub fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map(str::to_owned).unwrap_or(text)
}

/// Calls `read` for each item of a `#[diesel(..)]` attribute, with its name and the tokens after it. Tokens that `read` leaves are skipped:
/// Diesel checks them.
fn each_diesel_item(
    attr: &Attribute,
    mut read: impl FnMut(&Ident, ParseStream) -> Result<()>,
) -> Result<()> {
    attr.parse_args_with(|input: ParseStream| {
        while !input.is_empty() {
            if let Ok(name) = input.parse() {
                read(&name, input)?;
            }
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    })
}
