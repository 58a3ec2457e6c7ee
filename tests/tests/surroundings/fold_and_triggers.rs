//! Folds beside triggers that keep `updated_at`: with the conditions that the reference page on folding gives, an edit changes
//! it and a fold does not.

#[path = "fold_and_triggers"]
mod sqlite {
    type Conn = diesel::SqliteConnection;

    /// The usual trigger that keeps `updated_at`.
    const UNCONDITIONAL: &str = "ALTER TABLE videos ADD COLUMN updated_at TIMESTAMP;
        CREATE TRIGGER videos_updated_at AFTER UPDATE ON videos FOR EACH ROW WHEN OLD.updated_at IS NEW.updated_at
        BEGIN UPDATE videos SET updated_at = CURRENT_TIMESTAMP WHERE id = NEW.id; END";

    /// Drops a trigger of that name before it is created anew.
    const AGAIN: &str = "DROP TRIGGER videos_updated_at";

    const CONDITIONS: &[&str] = &["SQLite", "SQLite, by value"];

    mod cases;
}

#[path = "fold_and_triggers"]
mod postgres {
    type Conn = diesel::PgConnection;

    /// With the function of Diesel's first migration.
    const UNCONDITIONAL: &str = "ALTER TABLE videos ADD COLUMN updated_at TIMESTAMP;
        CREATE FUNCTION diesel_set_updated_at() RETURNS trigger AS $$
        BEGIN
            IF (NEW IS DISTINCT FROM OLD AND NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) THEN
                NEW.updated_at := current_timestamp;
            END IF;
            RETURN NEW;
        END;
        $$ LANGUAGE plpgsql;
        CREATE TRIGGER set_updated_at BEFORE UPDATE ON videos FOR EACH ROW EXECUTE PROCEDURE diesel_set_updated_at()";

    const AGAIN: &str = "SELECT 1";

    const CONDITIONS: &[&str] = &["PostgreSQL", "PostgreSQL, by value"];

    mod cases;
}

#[path = "fold_and_triggers"]
mod mysql {
    type Conn = diesel::MysqlConnection;

    const UNCONDITIONAL: &str = "ALTER TABLE videos ADD COLUMN updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP \
        ON UPDATE CURRENT_TIMESTAMP";

    const AGAIN: &str = "SELECT 1";

    const CONDITIONS: &[&str] = &["MySQL, MariaDB"];

    mod cases;
}
