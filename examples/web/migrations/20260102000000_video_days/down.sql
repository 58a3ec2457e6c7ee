DROP TABLE video_days;
