FOR sharded_row IN {row} LIMIT 2 LOOP
    sharded_rows := sharded_rows + 1;
END LOOP;
IF sharded_rows = 0 THEN
    RETURN NULL;
ELSIF sharded_rows = 1 THEN
    UPDATE {shards} SET {field} = {shards}.{field} {sign} sharded_row.n WHERE {is_shard} AND {shards}.{shard} = {number};
    IF FOUND THEN
        RETURN NULL;
    END IF;
END IF
