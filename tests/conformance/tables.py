"""Runs the statements of docs/tables.md as a program beside the crate would: python3 tables.py PAGE URL COUNTS

Several clients count on rows 1 and 2, fold all rows, read them through the view, set row 3, and insert and delete row 9. Meanwhile the crate
counts and folds on the same rows. Everybody adds 1 to `views` and 2 to `likes`, so every read shows whether a total is whole.
"""

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

PAGE, URL, COUNTS = sys.argv[1], sys.argv[2], int(sys.argv[3])
BASES = {1: (100, 1), 2: (200, 2)}
CONFLICTS = ("40001", "40P01", "55P03", 1213, 1205, 3572, 1020, "database is locked")


def statements(database):
    """The page's statements for a database, by the names in their comments: `-- name: PostgreSQL, SQLite`."""
    with open(PAGE, encoding="utf-8") as page:
        blocks = re.findall(r"```sql\n(.*?)```", page.read(), re.DOTALL)
    parts = re.split(r"^-- (\w+): (.*)$", "".join(blocks), flags=re.MULTILINE)[1:]
    named = {}
    for name, databases, text in zip(*[iter(parts)] * 3):
        if database in databases.split(", "):
            text = re.sub("--.*", "", text)
            named[name] = [sql.strip() for sql in text.split(";") if sql.strip()]
    return named


class Client:
    """A connection of its own, which sends each statement as it stands on the page."""

    def __init__(self):
        if URL.startswith("postgres:"):
            import psycopg2

            database, self.conn = "PostgreSQL", psycopg2.connect(URL)
            self.conn.autocommit = True
        elif URL.startswith("mysql:"):
            import pymysql

            database, url = "MariaDB", urlsplit(URL)
            account = {"user": url.username, "password": url.password or "", "database": url.path[1:]}
            self.conn = pymysql.connect(host=url.hostname, port=url.port or 3306, autocommit=True, **account)
        else:
            import sqlite3

            database = "SQLite"
            self.conn = sqlite3.connect(URL, timeout=60, isolation_level=None)
        self.named_by_colon = database == "SQLite"
        self.statements = statements(database)
        self.cursor = self.conn.cursor()

    def send(self, sql, **values):
        """The rows of a query, or the number of rows that were written."""
        if not self.named_by_colon:
            sql = re.sub(r":(\w+)", r"%(\1)s", sql)
        self.cursor.execute(sql, values)
        return list(self.cursor.fetchall()) if self.cursor.description else self.cursor.rowcount

    def run(self, name, **values):
        """What the statements of this name give; nothing where the page has none for the database."""
        return [self.send(sql, **values) for sql in self.statements.get(name, [])]

    def retried(self, work):
        """Work that is repeated as a whole after a conflict."""
        while True:
            try:
                return work(self)
            except Exception as error:
                code = getattr(error, "pgcode", None) or next(iter(error.args), None)
                if code not in CONFLICTS:
                    self.conn.close()  # its locks would hold up the others
                    raise
                if getattr(self.conn, "in_transaction", True):
                    self.send("ROLLBACK")

    def state(self, key):
        """The bases of a row, and the sums of its shards."""
        [[row]] = self.run("state", id=key)
        return tuple(row[:2]), tuple(row[2:])

    def fold(self, key, keep):
        """Folds a row, and says whether there was something to move."""
        self.run("begin")
        locked = self.run("lock", id=key)
        base, (views, likes) = self.state(key)
        total = (base[0] + views, base[1] + likes)
        self.run("move", id=key, views=views, likes=likes)
        assert self.state(key) == (total, (views, likes))
        [emptied] = self.run("empty", id=key)
        assert self.state(key) == (total, (0, 0))
        assert not locked or emptied <= sum(any(shard) for shard in locked[1])
        self.run("remove", id=key, keep=keep)
        self.send("COMMIT")
        return emptied > 0

    def set(self, key, views, likes):
        self.run("begin")
        self.run("lock", id=key)
        self.run("set", id=key, views=views, likes=likes)
        self.run("empty", id=key)
        assert self.state(key) == ((views, likes), (0, 0))
        self.send("COMMIT")

    def total(self, key):
        [[total]] = self.run("total", id=key)
        return tuple(total)


def count(shard):
    """Counts on both rows in turn, by the function where there is one."""
    client = Client()
    for i in range(COUNTS):
        name = "count" if i % 3 == 0 and "count" in client.statements else "add"
        values = {"id": 1 + i % 2, "shard": shard, "views": 1, "likes": 2}
        [counted] = client.retried(lambda client: client.run(name, **values))
        assert name == "count" or counted > 0
    assert client.run("add", id=77, shard=shard, views=1, likes=2) == [0]


def fold(is_over):
    client, moved = Client(), 0
    while not is_over.is_set():
        for key, keep in ((1, 0), (2, 100), (3, 8)):
            moved += client.retried(lambda client: client.fold(key, keep))
    return moved


def read(is_over):
    """No total is less than it was, and each is of one moment."""
    client, last, reads = Client(), 0, 0
    while not is_over.is_set():
        for key, (views, likes) in BASES.items():
            total = client.total(key)
            assert total[1] - likes == 2 * (total[0] - views), (key, total)
        [page] = client.run("page", after=0)
        [[[alone]]] = client.run("subquery", id=1)
        assert last <= page[0][1] <= alone and page[0][0] == 1, (last, page, alone)
        last, reads = alone, reads + 1
    return reads


def set_totals(is_over):
    client, n = Client(), 0
    while not is_over.is_set():
        n += 1
        client.retried(lambda client: client.set(3, n, -n))
        assert client.total(3) == (n, -n)
        client.retried(lambda client: client.run("add", id=3, shard=n % 16, views=10, likes=20))
        assert client.total(3) == (n + 10, 20 - n)
    client.retried(lambda client: client.set(3, 1000, 0))
    return n


def insert_and_delete(is_over):
    """The shards of a row go with it, also those that the crate is creating."""
    client, rows = Client(), 0
    shards = "SELECT COUNT(*) FROM videos_shards WHERE id = 9"
    while not is_over.is_set():
        rows += 1
        new = "INSERT INTO videos (id, slug, title) VALUES (9, 'nine', 'Nine')"
        client.retried(lambda client: client.send(new))
        for shard in range(3):
            client.retried(lambda client: client.run("add", id=9, shard=shard, views=1, likes=2))
        client.retried(lambda client: client.run("delete", id=9))
        assert client.send(shards) == [(0,)]
    return rows


def remove_orphans():
    """A session's own table stands for one without foreign key and triggers: the shard of row 88 goes, that of row 1 stays."""
    client = Client()
    client.send("CREATE TEMPORARY TABLE videos_shards (id BIGINT, shard INTEGER, views BIGINT, likes INTEGER)")
    client.send("INSERT INTO videos_shards VALUES (1, 0, 5, 0), (88, 0, 5, 0)")
    for key, removed in ((1, 0), (88, 1)):
        client.run("begin")
        assert client.run("orphans", id=key)[1:] in ([removed], [])
        client.send("COMMIT")
    client.conn.close()


remove_orphans()
is_over = threading.Event()
with ThreadPoolExecutor(max_workers=7) as pool:
    beside = {work.__name__: pool.submit(work, is_over) for work in (fold, read, set_totals, insert_and_delete)}
    try:
        for counting in [pool.submit(count, shard) for shard in range(3)]:
            counting.result()
    finally:
        is_over.set()
    done = {name: work.result() for name, work in beside.items()}
assert all(done.values()), done
print(done)
