DROP TABLE views_by_hour;
