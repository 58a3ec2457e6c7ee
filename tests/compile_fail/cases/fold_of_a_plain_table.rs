use diesel_sharded::fold;

diesel::table! {
    comments (id) {
        id -> BigInt,
    }
}

fn main() {
    let _ = fold(comments::table);
}
