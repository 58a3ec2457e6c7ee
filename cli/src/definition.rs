//! The text of an object of the database: the names in it, and whether it may read whole rows of a table.

/// Words that a table follows.
const SOURCES: &str = "from join update into using of table tables copy references truncate";

/// Words that an expression follows.
const EXPRESSIONS: &str =
    "select where on set values returning having by limit if when then else return perform ;";

/// Words and signs that a whole row may follow as a value.
const BEFORE_ROWS: &str = "( , = | < > select distinct all return next returning perform where by if when then else and or not from array";

/// Words that may follow a table without being its alias.
const NO_ALIASES: &str = "select with where on using set values left right inner cross full natural join straight_join order group limit having union for when then loop do returning default end";

/// Words after which `TABLE videos` is not a query.
const NO_QUERY: &str = "alter create temporary temp unlogged drop lock truncate rename analyze optimize check repair on for add into";

/// An object's text in lower case.
pub struct Definition {
    text: String,
}

impl Definition {
    /// Removes the second of two quotes inside a name.
    pub fn of(text: &str) -> Self {
        let text = text.replace("\"\"", "\"").replace("``", "`");
        Definition {
            text: text.to_lowercase(),
        }
    }

    /// Whether it contains this name, in code, in a comment or in a string.
    pub fn names(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        if name.chars().all(in_name) {
            return words(&self.text, true).contains(&&*name);
        }
        self.text.match_indices(&name).any(|(at, _)| {
            let (before, behind) = (&self.text[..at], &self.text[at + name.len()..]);
            !before.ends_with(in_name) && !behind.starts_with(in_name)
        })
    }

    /// Whether it updates this table.
    pub fn updates(&self, table: &str) -> bool {
        let (code, table) = (self.code(), table.to_lowercase());
        let table = [&*table];
        let mut named = code.places(&table);
        named.any(|at| code.word(code.before(at)) == "update")
    }

    /// Whether it reads whole rows of this table, or may. `others` are further names of such tables or rows, such as triggers and arguments
    /// have.
    pub fn reads_rows(&self, table: &str, others: &str) -> bool {
        let code = self.code();
        let (table, others) = (table.to_lowercase(), others.to_lowercase());
        let others: Vec<_> = others.split_whitespace().collect();
        let mut rows = others.clone();
        let sources = [&others[..], &[&table]].concat();
        for at in code.places(&sources) {
            if !code.is_source(at) {
                continue;
            }
            let before = code.before(at);
            match code.word(before) {
                "table" if !one_of(NO_QUERY, code.word(before.wrapping_sub(1))) => return true,
                "copy" if code.word(at + 1) == "to" => return true,
                _ => {}
            }
            let has_as = code.word(at + 1) == "as";
            let alias = code.word(at + 1 + usize::from(has_as));
            let is_alias = alias.starts_with(in_name) && !one_of(NO_ALIASES, alias);
            rows.push(if is_alias { alias } else { code.word(at) });
        }
        code.has_star() || code.has_natural_join() || code.places(&rows).any(|at| code.is_row(at))
    }

    fn code(&self) -> Code<'_> {
        Code(words(&self.text, false))
    }
}

/// The words and the single signs of a text.
struct Code<'t>(Vec<&'t str>);

impl<'t> Code<'t> {
    fn word(&self, at: usize) -> &'t str {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn places<'c>(&'c self, names: &'c [&'c str]) -> impl Iterator<Item = usize> + 'c {
        (0..self.0.len()).filter(|at| names.contains(&self.0[*at]))
    }

    /// The position before a table's name, its schema and `ONLY`.
    fn before(&self, at: usize) -> usize {
        let mut before = at.wrapping_sub(1);
        if self.word(before) == "." {
            before = before.wrapping_sub(2);
        }
        match self.word(before) {
            "only" => before.wrapping_sub(1),
            _ => before,
        }
    }

    /// Whether the word at this position is a table, and not part of an expression.
    fn is_source(&self, at: usize) -> bool {
        let mut depth = 0;
        for before in (0..at).rev() {
            let (word, earlier) = (self.0[before], self.word(before.wrapping_sub(1)));
            match word {
                ")" => depth += 1,
                "(" if depth > 0 => depth -= 1,
                "(" => return one_of(SOURCES, earlier),
                _ if depth > 0 => {}
                _ if one_of(SOURCES, word) => return (earlier, word) != ("distinct", "from"),
                _ if one_of(EXPRESSIONS, word) => return false,
                _ => {}
            }
        }
        false
    }

    /// Whether the name at this position is a whole row as a value, and not a table, a column's qualifier or a trigger's result.
    fn is_row(&self, at: usize) -> bool {
        let [before, name, behind] = [at.wrapping_sub(1), at, at + 1].map(|at| self.word(at));
        let has_field = behind == ")" && self.word(at + 2) == "." && self.word(at + 3) != "*";
        let is_result = before == "return" && one_of("new old", name);
        one_of(BEFORE_ROWS, before)
            && !one_of(". (", behind)
            && !(has_field || is_result || self.is_source(at))
    }

    /// Whether a `*` means all columns. In `count(*)` and between numbers it does not.
    fn has_star(&self) -> bool {
        self.places(&["*"]).any(|at| {
            let before = self.word(at.wrapping_sub(1));
            one_of(", . select distinct all returning", before)
                || one_of("from , into", self.word(at + 1))
        })
    }

    /// Whether there is a natural join, which reads every column that both tables have.
    fn has_natural_join(&self) -> bool {
        let mut places = self.places(&["natural"]);
        places.any(|at| one_of("join left right inner full", self.word(at + 1)))
    }
}

fn one_of(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || "_$".contains(c)
}

/// The words and signs of a text, without the quotes around names; the words of comments too, if `of_comments`.
fn words(text: &str, of_comments: bool) -> Vec<&str> {
    let (mut words, mut rest) = (vec![], text);
    while let Some(first) = rest.chars().next() {
        let to_end = |end: Option<usize>| end.unwrap_or(rest.len());
        let is_comment = !of_comments && (rest.starts_with("--") || rest.starts_with("/*"));
        let length = match first {
            '-' if is_comment => to_end(rest.find('\n')),
            '/' if is_comment => to_end(rest.find("*/").map(|at| at + 2)),
            c if in_name(c) => to_end(rest.find(|c| !in_name(c))),
            c => c.len_utf8(),
        };
        let (word, behind) = rest.split_at(length);
        rest = behind;
        if !is_comment && !first.is_whitespace() && !"\"`[]".contains(first) {
            words.push(unquoted(word));
        }
    }
    words
}

/// A word without adjacent dollar quotes: `SELECT` and `videos` in `$$SELECT 1 FROM videos$$`.
fn unquoted(word: &str) -> &str {
    let behind = word.strip_prefix('$').and_then(|rest| rest.split_once('$'));
    let word = behind.map_or(word, |(_, behind)| behind);
    let quoted = word.strip_suffix('$');
    let before = quoted.and_then(|rest| rest.rsplit_once('$'));
    before.map_or(word, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(text: &str, name: &str) -> bool {
        Definition::of(text).names(name)
    }

    fn reads_rows(text: &str) -> bool {
        Definition::of(text).reads_rows("Videos", "new old new_rows $1")
    }

    #[test]
    fn names_are_whole_words() {
        for text in [
            "select views",
            "`videos`.`views`",
            "sum(v.views)",
            "views",
            "AS $function$ SELECT Views$function$",
            "AS $$views$$",
            "EXECUTE 'SELECT views'",
        ] {
            assert!(names_in(text, "Views"), "{text}");
        }
        for text in ["previews", "views_base", "my$views", "a$views$b", ""] {
            assert!(!names_in(text, "views"), "{text}");
        }
        assert!(names_in("SELECT `sel``ect`", "sel`ect"));
    }

    #[test]
    fn an_update_names_its_table() {
        for text in [
            "update videos set views = 1",
            "UPDATE ONLY public.\"videos\"\nset",
        ] {
            assert!(Definition::of(text).updates("videos"), "{text}");
        }
        for text in ["update likes set n = 1 from videos", "videos update"] {
            assert!(!Definition::of(text).updates("videos"), "{text}");
        }
    }

    #[test]
    fn whole_rows_have_many_forms() {
        for text in [
            "select * from videos",
            "select distinct *",
            "SELECT DISTINCT ON (title) * FROM videos",
            "SELECT STRAIGHT_JOIN * FROM videos",
            "select sql_no_cache *, 1",
            "select 1, *",
            "v.*",
            "select\n *",
            "returning *",
            "insert into log values (to_jsonb(new)); return new",
            "TABLE videos",
            "BEGIN RETURN QUERY TABLE ONLY public.videos; END",
            "COPY public.videos TO STDOUT",
            "SELECT v FROM videos v",
            "SELECT to_jsonb(v) FROM log, videos AS v",
            "SELECT json_agg(videos) FROM videos",
            "SELECT to_jsonb(n) FROM new_rows n",
            "SELECT to_jsonb($1)",
            "SELECT (v).* FROM videos v",
            "IF new IS DISTINCT FROM old THEN",
            "SELECT 1 FROM log l WHERE l IS NOT DISTINCT FROM (SELECT v FROM videos v)",
            "SELECT title FROM videos NATURAL LEFT JOIN log",
        ] {
            assert!(reads_rows(text), "{text}");
        }
    }

    #[test]
    fn other_uses_of_rows_take_columns() {
        for text in [
            "count(*)",
            "select a * b",
            "2 * n",
            "SELECT count(*) AS videos FROM videos",
            "SELECT v.title FROM log l, videos v WHERE v.id = l.id",
            "SELECT l.id FROM (videos v JOIN log l ON l.id = v.id)",
            "FOR t IN SELECT title FROM videos LOOP f(t); END LOOP",
            "PERFORM pg_notify('videos', v.title) FROM videos v",
            "SELECT (v).title, ($1).title, $1.title FROM videos v",
            "UPDATE videos v SET title = 'x' WHERE v.id = 1",
            "DELETE v FROM videos v JOIN log l ON l.id = v.id",
            "INSERT INTO videos (id) SELECT id FROM log",
            "LOCK TABLE videos; TRUNCATE TABLE videos; ALTER TABLE ONLY videos",
            "COPY videos FROM STDIN",
            "CREATE TRIGGER t AFTER INSERT ON videos FOR EACH ROW",
            "IF new.title IS DISTINCT FROM old.title THEN RETURN new; END IF; RETURN NEW",
            "SELECT title FROM videos -- , videos, as in: SELECT videos",
            "SELECT 1 FROM videos FOR UPDATE OF videos",
        ] {
            assert!(!reads_rows(text), "{text}");
        }
    }
}
