-- The schema of the statistics of statements, if they are on.
SELECT IF(@@performance_schema, 'performance_schema', NULL)
