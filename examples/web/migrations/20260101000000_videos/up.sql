-- As an application has it before it knows of shards: the counts of its first years are in the plain columns.
CREATE TABLE videos (
    id BIGINT NOT NULL PRIMARY KEY,
    title VARCHAR(100) NOT NULL,
    channel VARCHAR(100) NOT NULL,
    seconds INTEGER NOT NULL,
    views BIGINT NOT NULL DEFAULT 0,
    likes INTEGER NOT NULL DEFAULT 0,
    hot DOUBLE PRECISION NOT NULL DEFAULT 0,
    last_watched_at TIMESTAMP NULL
);

CREATE TABLE video_likes (
    video_id BIGINT NOT NULL,
    visitor VARCHAR(32) NOT NULL,
    PRIMARY KEY (video_id, visitor),
    FOREIGN KEY (video_id) REFERENCES videos (id) ON DELETE CASCADE
);

INSERT INTO videos (id, title, channel, seconds, views, likes) VALUES
    (1, 'A harbour at dawn, one hour without a cut', 'Slow Places', 3600, 1284530, 48210),
    (2, 'How a mechanical clock keeps its beat', 'Taken Apart', 742, 863211, 39120),
    (3, 'Bread with three ingredients', 'Plain Kitchen', 515, 2145872, 90417),
    (4, 'The night train to the coast', 'Slow Places', 5403, 412087, 15093),
    (5, 'Why bridges sing in the wind', 'Short Physics', 388, 1530994, 61277),
    (6, 'Folding a crane from a bus ticket', 'Paper Hour', 254, 98213, 5310),
    (7, 'Elephants at the watering hole', 'Field Camera', 19, 3541120, 120845),
    (8, 'Tuning a piano by ear', 'Taken Apart', 1264, 276540, 11982),
    (9, 'What a row lock is, with marbles', 'Databases by Hand', 611, 74309, 4127),
    (10, 'A year in one garden', 'Field Camera', 366, 1902345, 83411),
    (11, 'Drawing a map of a city from memory', 'Paper Hour', 933, 154872, 7095),
    (12, 'Soup for a cold Monday', 'Plain Kitchen', 421, 645901, 22310),
    (13, 'The lighthouse keeps turning', 'Slow Places', 7215, 233418, 9870),
    (14, 'How glass is blown', 'Taken Apart', 878, 1120764, 47002),
    (15, 'Pendulums that drift apart', 'Short Physics', 207, 731255, 30518),
    (16, 'Counting stars without a telescope', 'Short Physics', 594, 318846, 14660),
    (17, 'Swifts above the old mill', 'Field Camera', 143, 52077, 3018),
    (18, 'Two-phase commit, played by waiters', 'Databases by Hand', 702, 41562, 2875),
    (19, 'Dumplings, folded slowly', 'Plain Kitchen', 836, 982310, 40133),
    (20, 'Rain on a tin roof, ten hours', 'Slow Places', 36000, 4210388, 97554),
    (21, 'A paper boat that carries a stone', 'Paper Hour', 322, 187634, 8241),
    (22, 'The lock inside the lock', 'Taken Apart', 1011, 509127, 20984),
    (23, 'Deadlock, with two people and one door', 'Databases by Hand', 356, 66840, 3906),
    (24, 'Foxes crossing the tram line', 'Field Camera', 48, 2764091, 110230);
