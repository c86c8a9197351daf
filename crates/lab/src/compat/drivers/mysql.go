// Checks go-sql-driver/mysql under database/sql.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

var ctx = context.Background()

func open(port, options string) *sql.DB {
	address := fmt.Sprintf("sbtest:sbtest@tcp(%s:%s)/sbtest?%s", host, port, options)
	db, err := sql.Open("mysql", address)
	must(err)
	return db
}

func with(name, options string, body func(db *sql.Conn) any) {
	check(name, func() any {
		pool := open(port, options)
		defer pool.Close()
		db, err := pool.Conn(ctx)
		must(err)
		defer db.Close()
		return body(db)
	})
}

type querier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func run(db querier, text string, values ...any) sql.Result {
	result, err := db.ExecContext(ctx, text, values...)
	must(err)
	return result
}

func value(db querier, text string, values ...any) string {
	var found sql.NullString
	must(db.QueryRowContext(ctx, text, values...).Scan(&found))
	if !found.Valid {
		return "NULL"
	}
	return found.String
}

func number(err error) any {
	var fields *mysql.MySQLError
	if errors.As(err, &fields) {
		return fmt.Sprint(fields.Number, " ", string(fields.SQLState[:]), " ", fields.Message)
	}
	return fmt.Sprint(err)
}

func fails(db querier, text string, values ...any) any {
	_, err := db.ExecContext(ctx, text, values...)
	return number(err)
}

func main() {
	pool := open(port, "")
	run(pool, "CREATE TABLE go_notes (id INT PRIMARY KEY AUTO_INCREMENT, tag VARCHAR(20),"+
		" number INT UNIQUE, moment DATETIME(6), bytes BLOB, amount DECIMAL(10, 3))"+
		" CHARACTER SET utf8mb4")
	pool.Close()
	logins()
	statements()
	transactions()
	signals()
	pools()
	idles()
	fmt.Println("end")
}

func logins() {
	with("session variables after the login", "charset=utf8mb4&loc=UTC&parseTime=true",
		func(db *sql.Conn) any {
			return value(db, "SELECT CONCAT_WS(' ', @@autocommit, @@character_set_client,"+
				" @@collation_connection, @@sql_mode, @@time_zone)")
		})
	with("variables in the address", "sql_mode=%27ANSI_QUOTES%27&group_concat_max_len=2222"+
		"&tx_isolation=%27SERIALIZABLE%27", func(db *sql.Conn) any {
		return value(db, "SELECT CONCAT_WS(' ', @@sql_mode, @@group_concat_max_len, @@tx_isolation)")
	})
	check("a wrong password", func() any {
		db, err := sql.Open("mysql", fmt.Sprintf("sbtest:wrong@tcp(%s:%s)/sbtest", host, port))
		must(err)
		return number(db.Ping())
	})
	check("an unknown database", func() any {
		db, err := sql.Open("mysql", fmt.Sprintf("sbtest:sbtest@tcp(%s:%s)/nowhere", host, port))
		must(err)
		return number(db.Ping())
	})
}

func statements() {
	with("values in a text of the driver", "interpolateParams=true", func(db *sql.Conn) any {
		return value(db, "SELECT CONCAT(?, ' ', ?)", "it's", 5)
	})
	with("a prepared statement 40 times, in transactions and outside", "", reused)
	with("300 prepared statements", "", func(db *sql.Conn) any {
		var all []*sql.Stmt
		for number := range 300 {
			one, err := db.PrepareContext(ctx, fmt.Sprintf("SELECT ? + %d", number))
			must(err)
			all = append(all, one)
		}
		for number, one := range all {
			var found float64
			must(one.QueryRow(1).Scan(&found))
			equal(number+1, found)
			must(one.Close())
		}
		return nil
	})
	with("an error of a prepared statement, then the same again", "", func(db *sql.Conn) any {
		var seen []any
		for _, word := range []int{2, 1, 2, 1} {
			var found sql.NullString
			row := db.QueryRowContext(ctx, "SELECT 1 = (SELECT 1 UNION SELECT ?)", word)
			seen = append(seen, number(row.Scan(&found)), found.String)
		}
		return seen
	})
	with("values of several types", "parseTime=true&charset=utf8mb4", types)
	with("several statements in a text", "multiStatements=true", func(db *sql.Conn) any {
		rows, err := db.QueryContext(ctx, "SELECT 1; SELECT 2; SELECT 3")
		must(err)
		defer rows.Close()
		var seen []int
		for ok := true; ok; ok = rows.NextResultSet() {
			for rows.Next() {
				var found int
				must(rows.Scan(&found))
				seen = append(seen, found)
			}
		}
		return seen
	})
	with("LastInsertId, RowsAffected", "", func(db *sql.Conn) any {
		result := run(db, "INSERT INTO go_notes (tag) VALUES ('i'), ('i')")
		id, _ := result.LastInsertId()
		rows, _ := result.RowsAffected()
		equal(id, value(db, "SELECT LAST_INSERT_ID()"))
		again, _ := run(db, "UPDATE go_notes SET tag = 'i' WHERE tag = 'i'").RowsAffected()
		return []int64{rows, again}
	})
	with("clientFoundRows", "clientFoundRows=true", func(db *sql.Conn) any {
		rows, _ := run(db, "UPDATE go_notes SET tag = 'i' WHERE tag = 'i'").RowsAffected()
		return rows
	})
	with("errors", "", func(db *sql.Conn) any {
		run(db, "INSERT INTO go_notes (tag, number) VALUES ('e', 1)")
		var seen []any
		for _, text := range []string{"INSERT INTO go_notes (tag, number) VALUES ('e', 1)",
			"SELEC 1", "SELECT nothing FROM go_notes", "SELECT * FROM go_nowhere"} {
			seen = append(seen, fails(db, text))
		}
		return seen
	})
	with("a value of 3 MB, prepared and in a text", "interpolateParams=true&maxAllowedPacket=0",
		func(db *sql.Conn) any {
			large := strings.Repeat("x", 3_000_000)
			statement, err := db.PrepareContext(ctx, "SELECT LENGTH(?)")
			must(err)
			var found string
			must(statement.QueryRow(large).Scan(&found))
			return []string{found, value(db, "SELECT LENGTH(?)", large)}
		})
	with("LOAD DATA LOCAL", "", func(db *sql.Conn) any {
		mysql.RegisterReaderHandler("rows", func() io.Reader {
			return strings.NewReader("1\ta\n2\tb\n")
		})
		run(db, "CREATE TABLE go_loaded (a INT, b VARCHAR(20))")
		rows, _ := run(db, "LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE go_loaded").
			RowsAffected()
		return []any{rows, value(db, "SELECT COUNT(*) FROM go_loaded")}
	})
	with("a result is read in part", "", func(db *sql.Conn) any {
		rows, err := db.QueryContext(ctx, "SELECT seq FROM seq_1_to_5000")
		must(err)
		rows.Next()
		must(rows.Close())
		return value(db, "SELECT 7")
	})
	with("variables of the session and of the user", "", func(db *sql.Conn) any {
		run(db, "SET @own = 'x', SESSION group_concat_max_len = 2222")
		return value(db, "SELECT CONCAT_WS(' ', @own, @@group_concat_max_len)")
	})
}

func reused(db *sql.Conn) any {
	statement, err := db.PrepareContext(ctx, "SELECT ? + 1")
	must(err)
	defer statement.Close()
	for number := range 40 {
		tx, err := db.BeginTx(ctx, nil)
		must(err)
		var inside, outside float64
		must(tx.Stmt(statement).QueryRow(number).Scan(&inside))
		must(tx.Commit())
		must(statement.QueryRow(number).Scan(&outside))
		equal([]int{number + 1, number + 1}, []float64{inside, outside})
	}
	return nil
}

func types(db *sql.Conn) any {
	moment := time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)
	run(db, "INSERT INTO go_notes (tag, number, moment, bytes, amount) VALUES (?, ?, ?, ?, ?)",
		"ä\U0001f600", -5, moment, []byte{0, 255}, "-12.345")
	var tag, amount string
	var number sql.NullInt64
	var found time.Time
	var bytes []byte
	must(db.QueryRowContext(ctx, "SELECT tag, number, moment, bytes, amount FROM go_notes"+
		" WHERE number = ?", -5).Scan(&tag, &number, &found, &bytes, &amount))
	equal(true, found.Equal(moment))
	return []any{tag, number.Int64, bytes, amount}
}

func transactions() {
	insert := "INSERT INTO go_notes (tag) VALUES ('t')"
	with("commit, rollback, savepoint", "", func(db *sql.Conn) any {
		tx, err := db.BeginTx(ctx, nil)
		must(err)
		run(tx, insert)
		run(tx, "SAVEPOINT a")
		run(tx, insert)
		run(tx, "ROLLBACK TO a")
		must(tx.Commit())
		tx, err = db.BeginTx(ctx, nil)
		must(err)
		run(tx, insert)
		must(tx.Rollback())
		return value(db, "SELECT COUNT(*) FROM go_notes WHERE tag = 't'")
	})
	with("isolation level, read only", "", func(db *sql.Conn) any {
		var seen []any
		for _, level := range []sql.IsolationLevel{sql.LevelSerializable, sql.LevelReadCommitted} {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: true})
			must(err)
			seen = append(seen, value(tx, "SELECT @@tx_isolation"), fails(tx, insert))
			must(tx.Rollback())
		}
		return seen
	})
}

func signals() {
	with("a query whose context ends: the driver closes the connection", "", func(db *sql.Conn) any {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := db.ExecContext(short, "SELECT SLEEP(10)")
		return errors.Is(err, context.DeadlineExceeded)
	})
	with("KILL QUERY of CONNECTION_ID()", "", func(db *sql.Conn) any {
		pool := open(port, "")
		defer pool.Close()
		id := value(db, "SELECT CONNECTION_ID()")
		go func() {
			time.Sleep(300 * time.Millisecond)
			pool.Exec("KILL QUERY " + id)
		}()
		since := time.Now()
		_, err := db.ExecContext(ctx, "SELECT SLEEP(10)")
		inTime := time.Since(since) < 5*time.Second
		return []any{inTime, number(err), value(db, "SELECT 6")}
	})
	with("Ping", "", func(db *sql.Conn) any { return db.PingContext(ctx) })
}

func pools() {
	for _, options := range []string{"", "interpolateParams=true"} {
		tag := strings.TrimSuffix("pool"+options, "Params=true")
		check(strings.TrimSpace("60 goroutines on 30 connections "+options), func() any {
			db := open(port, options)
			defer db.Close()
			db.SetMaxOpenConns(30)
			db.SetMaxIdleConns(30)
			together(60, func(own int) {
				for round := range 3 {
					number := 10_000 + len(options)*10_000 + own*10 + round
					tx, err := db.Begin()
					must(err)
					run(tx, "INSERT INTO go_notes (tag, number) VALUES (?, ?)", tag, number)
					equal(number, value(tx, "SELECT number FROM go_notes WHERE number = ?", number))
					must(tx.Commit())
				}
			})
			return value(db, "SELECT COUNT(*) FROM go_notes WHERE tag = ?", tag)
		})
	}
}

func idle(name, options string, step func(db *sql.DB)) {
	one := func() *sql.DB {
		db := open(smallPort, options)
		db.SetMaxOpenConns(1)
		must(db.Ping())
		return db
	}
	starves(name, one, step, func(db *sql.DB) { value(db, "SELECT 4") },
		func(db *sql.DB) { db.Close() })
}

func idles() {
	idle("a login", "", func(*sql.DB) {})
	idle("a login with options", "charset=utf8mb4&collation=utf8mb4_unicode_ci&loc=UTC",
		func(db *sql.DB) { value(db, "SELECT 1") })
	idle("variables in the address", "sql_mode=%27ANSI_QUOTES%27&wait_timeout=1234",
		func(db *sql.DB) { value(db, "SELECT 1") })
	idle("a query", "", func(db *sql.DB) { value(db, "SELECT 1") })
	idle("a query prepared once", "", func(db *sql.DB) { value(db, "SELECT ? + 1", 1) })
	idle("a prepared statement", "", func(db *sql.DB) {
		statement, err := db.Prepare("SELECT ? + 1")
		must(err)
		statement.QueryRow(1).Scan(new(string))
	})
	idle("an INSERT", "", func(db *sql.DB) {
		run(db, "INSERT INTO go_notes (tag) VALUES (?)", "s")
	})
	idle("a serializable transaction", "", func(db *sql.DB) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		must(err)
		run(tx, "INSERT INTO go_notes (tag) VALUES ('s')")
		must(tx.Commit())
	})
	idle("a read-only transaction", "", func(db *sql.DB) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		must(err)
		value(tx, "SELECT COUNT(*) FROM go_notes")
		must(tx.Rollback())
	})
	idle("a lock that was given back", "", func(db *sql.DB) {
		if value(db, "SELECT GET_LOCK('go', 0)") == "1" {
			value(db, "SELECT RELEASE_LOCK('go')")
		}
	})
}
