CREATE TABLE video_days (
    video_id BIGINT NOT NULL,
    day DATE NOT NULL,
    views BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (video_id, day),
    FOREIGN KEY (video_id) REFERENCES videos (id) ON DELETE CASCADE
);
