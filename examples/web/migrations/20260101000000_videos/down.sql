DROP TABLE video_likes;
DROP TABLE videos;
