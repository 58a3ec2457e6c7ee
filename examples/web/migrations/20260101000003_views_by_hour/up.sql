-- The hour is counted since 1970. Buckets refer to no video, so a count locks nothing but its shard.
CREATE TABLE views_by_hour (
    video_id BIGINT NOT NULL,
    hour BIGINT NOT NULL,
    number INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (video_id, hour)
);

CREATE INDEX views_by_hour_hour ON views_by_hour (hour);
