// Checks pgx: connections, batches, its pool, and database/sql on it.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var ctx = context.Background()

func address(port, options string) string {
	return fmt.Sprintf("postgres://sbtest:sbtest@%s:%s/sbtest?sslmode=disable%s", host, port, options)
}

func open(port, options string) *pgx.Conn {
	db, err := pgx.Connect(ctx, address(port, options))
	must(err)
	return db
}

func with(name, options string, body func(db *pgx.Conn) any) {
	check(name, func() any {
		db := open(port, options)
		defer db.Close(ctx)
		return body(db)
	})
}

type querier interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

func run(db querier, text string, values ...any) string {
	tag, err := db.Exec(ctx, text, values...)
	must(err)
	return tag.String()
}

func value(db querier, text string, values ...any) any {
	var found any
	must(db.QueryRow(ctx, text, values...).Scan(&found))
	return found
}

func state(err error) string {
	var fields *pgconn.PgError
	if errors.As(err, &fields) {
		return fields.Code
	}
	return fmt.Sprint(err)
}

func fails(db querier, text string, values ...any) string {
	_, err := db.Exec(ctx, text, values...)
	return state(err)
}

func main() {
	db := open(port, "")
	run(db, "CREATE SCHEMA pgx")
	run(db, "CREATE TABLE pgx.notes (id serial PRIMARY KEY, tag text, number int UNIQUE)")
	run(db, "CREATE TYPE pgx.mood AS ENUM ('sad', 'ok')")
	run(db, "CREATE TYPE pgx.pair AS (a int, b pgx.mood)")
	db.Close(ctx)
	logins()
	statements()
	transactions()
	streams()
	signals()
	pools()
	idles()
	fmt.Println("end")
}

func logins() {
	with("parameters that the server reports", "&application_name=app", func(db *pgx.Conn) any {
		var seen []string
		for _, name := range []string{"server_version", "client_encoding", "DateStyle", "TimeZone",
			"application_name", "standard_conforming_strings", "session_authorization"} {
			seen = append(seen, db.PgConn().ParameterStatus(name))
		}
		return seen
	})
	check("a wrong password", func() any {
		_, err := pgx.Connect(ctx, strings.Replace(address(port, ""), ":sbtest@", ":wrong@", 1))
		return state(err)
	})
	with("run-time parameters", "&search_path=pgx&statement_timeout=1234", func(db *pgx.Conn) any {
		return []any{value(db, "SHOW search_path"), value(db, "SHOW statement_timeout")}
	})
}

func statements() {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec",
		"simple_protocol"} {
		with("a statement 40 times, "+mode, "&default_query_exec_mode="+mode, reused)
	}
	with("600 statements, more than the cache holds", "", func(db *pgx.Conn) any {
		for number := range 600 {
			equal(number+1, value(db, fmt.Sprintf("SELECT $1::int + %d", number), 1))
		}
		return nil
	})
	with("Prepare with a name, and Deallocate", "", func(db *pgx.Conn) any {
		about, err := db.Prepare(ctx, "own", "SELECT $1::int + 1")
		must(err)
		found := value(db, "own", 4)
		must(db.Deallocate(ctx, "own"))
		return []any{about.ParamOIDs, found, fails(db, "EXECUTE own(1)")}
	})
	with("an error of a statement, then the same again", "", func(db *pgx.Conn) any {
		var seen []any
		for range 2 {
			seen = append(seen, fails(db, "SELECT 1 / $1::int", 0))
			seen = append(seen, value(db, "SELECT 1 / $1::int", 1))
		}
		return seen
	})
	with("a prepared statement of a changed table", "", func(db *pgx.Conn) any {
		run(db, "CREATE TABLE pgx.changing (a int)")
		run(db, "SELECT * FROM pgx.changing")
		run(db, "ALTER TABLE pgx.changing ADD b int")
		first := fails(db, "SELECT * FROM pgx.changing")
		return []string{first, fails(db, "SELECT * FROM pgx.changing")}
	})
	with("values of several types", "", types)
	with("enums and composites that the driver looks up", "", func(db *pgx.Conn) any {
		for _, name := range []string{"pgx.mood", "pgx._mood", "pgx.pair"} {
			kind, err := db.LoadType(ctx, name)
			must(err)
			db.TypeMap().RegisterType(kind)
		}
		return []any{value(db, "SELECT 'ok'::pgx.mood"), value(db, "SELECT (1, 'sad')::pgx.pair")}
	})
	with("fields of errors, notices", "", errorFields)
	with("a value of 3 MB", "", func(db *pgx.Conn) any {
		large := strings.Repeat("x", 3_000_000)
		equal(large, value(db, "SELECT $1::text", large))
		return nil
	})
}

func reused(db *pgx.Conn) any {
	for number := range 40 {
		if number%3 == 0 {
			run(db, "BEGIN")
		}
		equal(number+1, value(db, "SELECT $1::int + 1", number))
		if number%3 == 0 {
			run(db, "COMMIT")
		}
	}
	return nil
}

func types(db *pgx.Conn) any {
	moment := time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)
	rows, err := db.Query(ctx, "SELECT $1::int8, $2::text, $3::bytea, $4::timestamptz, $5::jsonb,"+
		" $6::int[], $7::uuid, $8::numeric, $9::inet", int64(1)<<40, "ä\U0001f600",
		[]byte{0, 255}, moment, map[string]any{"a": 1}, []int32{1, 2},
		"00000000-0000-0000-0000-000000000007", "1.50", "::1")
	must(err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) {
		return row.Values()
	})
	must(err)
	equal(true, all[0][3].(time.Time).Equal(moment))
	all[0][3] = nil
	number, err := all[0][7].(pgtype.Numeric).Value()
	must(err)
	all[0][7] = number
	return all
}

func errorFields(*pgx.Conn) any {
	config, err := pgx.ParseConfig(address(port, ""))
	must(err)
	var seen []any
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		seen = append(seen, notice.Severity, notice.Message)
	}
	db, err := pgx.ConnectConfig(ctx, config)
	must(err)
	defer db.Close(ctx)
	run(db, "DO $$ BEGIN RAISE NOTICE 'one'; END $$")
	run(db, "INSERT INTO pgx.notes (tag, number) VALUES ('e', 1)")
	for _, text := range []string{"INSERT INTO pgx.notes (tag, number) VALUES ('e', 1)", "SELEC 1",
		"SELECT nothing", "SELECT 1/0"} {
		_, err := db.Exec(ctx, text)
		var fields *pgconn.PgError
		errors.As(err, &fields)
		seen = append(seen, fields.Code, fields.Message, fields.Detail, fields.Position,
			fields.ConstraintName, fields.Routine)
	}
	return seen
}

const rowsOf = "SELECT count(*) FROM pgx.notes WHERE tag = $1"

func transactions() {
	insert := "INSERT INTO pgx.notes (tag) VALUES ('t')"
	with("commit, rollback, nested transactions", "", func(db *pgx.Conn) any {
		must(pgx.BeginFunc(ctx, db, func(outer pgx.Tx) error {
			run(outer, insert)
			inner, err := outer.Begin(ctx)
			must(err)
			run(inner, insert)
			return inner.Rollback(ctx)
		}))
		options := pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly,
			DeferrableMode: pgx.Deferrable}
		tx, err := db.BeginTx(ctx, options)
		must(err)
		level := value(tx, "SHOW transaction_isolation")
		refused := fails(tx, insert)
		must(tx.Rollback(ctx))
		return []any{level, refused, value(db, rowsOf, "t")}
	})
	with("a failed transaction", "", func(db *pgx.Conn) any {
		tx, err := db.Begin(ctx)
		must(err)
		states := []string{fails(tx, "SELECT 1/0"), fails(tx, "SELECT 1")}
		return []any{states, tx.Commit(ctx), value(db, "SELECT 1")}
	})
	with("a batch", "", func(db *pgx.Conn) any {
		batch := &pgx.Batch{}
		for number := range 200 {
			batch.Queue("SELECT $1::int", number)
		}
		results := db.SendBatch(ctx, batch)
		sum := 0
		for range 200 {
			var found int
			must(results.QueryRow().Scan(&found))
			sum += found
		}
		must(results.Close())
		return sum
	})
	with("an error in a batch", "", func(db *pgx.Conn) any {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO pgx.notes (tag) VALUES ('batch')")
		batch.Queue("SELECT 1 / $1::int", 0)
		batch.Queue("INSERT INTO pgx.notes (tag) VALUES ('batch')")
		found := state(db.SendBatch(ctx, batch).Close())
		return []any{found, value(db, rowsOf, "batch")}
	})
	with("a pipeline with errors", "", pipeline)
}

func pipeline(db *pgx.Conn) any {
	pipeline := db.PgConn().StartPipeline(ctx)
	for number := range 4 {
		text := fmt.Sprintf("SELECT 10 / ($1::int4 - %d)", number)
		pipeline.SendQueryParams(text, [][]byte{[]byte("2")}, nil, nil, nil)
		must(pipeline.Sync())
	}
	var seen []any
	for range 8 {
		results, err := pipeline.GetResults()
		switch results := results.(type) {
		case *pgconn.ResultReader:
			found := results.Read()
			if found.Err != nil {
				seen = append(seen, state(found.Err))
			} else {
				seen = append(seen, string(found.Rows[0][0]))
			}
		case *pgconn.PipelineSync:
			seen = append(seen, "sync")
		default:
			seen = append(seen, state(err))
		}
	}
	pipeline.Close()
	return append(seen, value(db, "SELECT 5"))
}

func streams() {
	with("COPY from the client and to the client", "", func(db *pgx.Conn) any {
		run(db, "CREATE TABLE pgx.copied (a int, b text)")
		rows := pgx.CopyFromSlice(10_000, func(number int) ([]any, error) {
			return []any{number, "row"}, nil
		})
		copied, err := db.CopyFrom(ctx, pgx.Identifier{"pgx", "copied"}, []string{"a", "b"}, rows)
		must(err)
		var out bytes.Buffer
		_, err = db.PgConn().CopyTo(ctx, &out, "COPY pgx.copied TO STDOUT")
		must(err)
		_, err = db.PgConn().CopyFrom(ctx, strings.NewReader("1\ta\nx\tb\n"),
			"COPY pgx.copied FROM STDIN")
		return []any{copied, out.Len(), state(err), value(db, "SELECT count(*) FROM pgx.copied")}
	})
	with("a result is read in part", "", func(db *pgx.Conn) any {
		rows, err := db.Query(ctx, "SELECT generate_series(1, 5000)")
		must(err)
		rows.Next()
		rows.Close()
		return value(db, "SELECT 7")
	})
}

func signals() {
	with("a query whose context ends: pgx closes the connection", "", func(db *pgx.Conn) any {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := db.Exec(short, "SELECT pg_sleep(10)")
		return []any{errors.Is(err, context.DeadlineExceeded), db.IsClosed()}
	})
	with("CancelRequest", "", func(db *pgx.Conn) any {
		go func() {
			time.Sleep(300 * time.Millisecond)
			must(db.PgConn().CancelRequest(ctx))
		}()
		return []any{fails(db, "SELECT pg_sleep(10)"), value(db, "SELECT 6")}
	})
	with("pg_cancel_backend of the process id that the driver knows", "", func(db *pgx.Conn) any {
		other := open(port, "")
		defer other.Close(ctx)
		var said any
		go func() {
			time.Sleep(300 * time.Millisecond)
			said = value(other, "SELECT pg_cancel_backend($1)", db.PgConn().PID())
		}()
		return []any{fails(db, "SELECT pg_sleep(10)"), value(db, "SELECT 6"), said}
	})
	with("the process id is pg_backend_pid()", "", func(db *pgx.Conn) any {
		equal(db.PgConn().PID(), value(db, "SELECT pg_backend_pid()"))
		return nil
	})
	with("a notification of another session", "", func(db *pgx.Conn) any {
		other := open(port, "")
		defer other.Close(ctx)
		return notified(db, other)
	})
	with("the sender of a session's own notification", "", func(db *pgx.Conn) any {
		return notified(db, db)
	})
}

func notified(db, sender *pgx.Conn) any {
	run(db, "LISTEN a")
	run(sender, "SELECT pg_notify('a', $1)", "hello")
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	heard, err := db.WaitForNotification(soon)
	must(err)
	equal(sender.PgConn().PID(), heard.PID)
	return []string{heard.Channel, heard.Payload}
}

func pools() {
	check("a pool of 30 that 60 goroutines use", func() any {
		pool, err := pgxpool.New(ctx, address(port, "&pool_max_conns=30&pool_min_conns=30"))
		must(err)
		defer pool.Close()
		together(60, func(own int) {
			for round := range 3 {
				number := 10_000 + own*10 + round
				must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					run(tx, "INSERT INTO pgx.notes (tag, number) VALUES ('pool', $1)", number)
					equal(number, value(tx, "SELECT number FROM pgx.notes WHERE number = $1", number))
					return nil
				}))
			}
		})
		return value(pool, rowsOf, "pool")
	})
	check("database/sql with 30 connections", func() any {
		db, err := sql.Open("pgx", address(port, ""))
		must(err)
		defer db.Close()
		db.SetMaxOpenConns(30)
		statement, err := db.Prepare("INSERT INTO pgx.notes (tag, number) VALUES ('sql', $1)")
		must(err)
		together(60, func(own int) {
			_, err := statement.Exec(20_000 + own)
			must(err)
		})
		var rows int
		must(db.QueryRow(rowsOf, "sql").Scan(&rows))
		return rows
	})
}

func idle(name, options string, step func(db *pgx.Conn)) {
	starves(name, func() *pgx.Conn { return open(smallPort, options) }, step,
		func(db *pgx.Conn) { value(db, "SELECT 4") },
		func(db *pgx.Conn) { db.Close(ctx) })
}

func idles() {
	idle("a login", "", func(*pgx.Conn) {})
	idle("a query", "", func(db *pgx.Conn) { value(db, "SELECT 1") })
	idle("a query with parameters", "", func(db *pgx.Conn) { value(db, "SELECT $1::int", 1) })
	idle("simple_protocol", "&default_query_exec_mode=simple_protocol", func(db *pgx.Conn) {
		value(db, "SELECT $1::int", 1)
	})
	idle("run-time parameters", "&search_path=pgx&statement_timeout=1234", func(db *pgx.Conn) {
		value(db, "SELECT 1")
	})
	idle("a transaction", "", func(db *pgx.Conn) {
		must(pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.Serializable},
			func(tx pgx.Tx) error {
				value(tx, rowsOf, "t")
				return nil
			}))
	})
	idle("a batch", "", func(db *pgx.Conn) {
		batch := &pgx.Batch{}
		for number := range 20 {
			batch.Queue("SELECT $1::int", number)
		}
		must(db.SendBatch(ctx, batch).Close())
	})
	idle("Prepare and Deallocate", "", func(db *pgx.Conn) {
		_, err := db.Prepare(ctx, "own", "SELECT 1")
		must(err)
		must(db.Deallocate(ctx, "own"))
	})
	idle("a look at types", "", func(db *pgx.Conn) {
		_, err := db.LoadTypes(ctx, []string{"pgx.mood", "pgx.pair"})
		must(err)
	})
	idle("COPY", "", func(db *pgx.Conn) {
		var out bytes.Buffer
		_, err := db.PgConn().CopyTo(ctx, &out, "COPY (SELECT 1) TO STDOUT")
		must(err)
	})
	idle("set_config", "", func(db *pgx.Conn) {
		run(db, "SELECT set_config('app.tenant', $1, false)", "seven")
	})
	idle("an advisory lock that was given back", "", func(db *pgx.Conn) {
		if value(db, "SELECT pg_try_advisory_lock(81)") == true {
			run(db, "SELECT pg_advisory_unlock(81)")
		}
	})
	idle("LISTEN", "", func(db *pgx.Conn) { run(db, "LISTEN own") })
	idle("UNLISTEN", "", func(db *pgx.Conn) {
		run(db, "LISTEN own")
		run(db, "UNLISTEN own")
	})
}
