//! The texts of those of PostgreSQL's errors that matter here, in every language that it ships.
//!
//! Diesel hands on the server's text and no SQLSTATE, and the text is in the language of `lc_messages`, which only a
//! superuser may change. Source: the message catalogues (`postgres-*.mo`) of PostgreSQL 15 and 18.

use crate::backend::TAKEN_FOR_ANOTHER;
use crate::conflict::{Conflict, Failure};

/// What a text means; `%s` in a pattern stands for the name of a relation, or at its end for what follows.
pub(super) fn classify(message: &str) -> Failure {
    if message.contains(TAKEN_FOR_ANOTHER) {
        return Failure::Conflict(Conflict::StatementLost);
    }
    PATTERNS
        .iter()
        .find(|(patterns, _)| patterns.iter().any(|pattern| matches(pattern, message)))
        .map_or(Failure::Other, |(_, failure)| *failure)
}

fn matches(pattern: &str, message: &str) -> bool {
    match pattern.split_once("%s") {
        Some((before, after)) => message
            .strip_prefix(before)
            .is_some_and(|rest| rest.ends_with(after)),
        None => pattern == message,
    }
}

const PATTERNS: &[(&[&str], Failure)] = &[
    (DEADLOCK, Failure::Conflict(Conflict::Deadlock)),
    (LOCK_TIMEOUT, Failure::Conflict(Conflict::LockTimeout)),
    (
        STATEMENT_TIMEOUT,
        Failure::Conflict(Conflict::StatementTimeout),
    ),
    (SERIALIZATION, Failure::Conflict(Conflict::Serialization)),
    (OVERFLOW, Failure::Overflow),
    (AMBIGUOUS, Failure::ConnectionLost),
    (TERMINATED, Failure::ConnectionLost),
    (DISK_FULL, Failure::DiskFull),
    (STATEMENT_LOST, Failure::Conflict(Conflict::StatementLost)),
];

/// 53100, in English alone: the reason at its end is the C library's, and in that one's language.
const DISK_FULL: &[&str] = &[
    "could not extend file \"%s\": No space left on device",
    "could not write to file \"%s\": No space left on device",
];

/// 40003, of a commit whose outcome CockroachDB cannot tell. Its texts are English alone.
const AMBIGUOUS: &[&str] = &["result is ambiguous%s"];

/// 57P01, 57P02, 57P05, 25P03, 25P04, and 40001 of a standby: the last that a connection is told. Diesel's own connection tells by a
/// kind that it is closed; tokio-postgres hands on the text.
const TERMINATED: &[&str] = &[
    "terminating connection due to administrator command",
    "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators",
    "terminando la conexión debido a una orden del administrador",
    "arrêt des connexions suite à la demande de l'administrateur",
    "interruzione della connessione su comando dell'amministratore",
    "管理者コマンドにより接続を終了しています",
    "მიერთების შეწყვეტა ადმინისტრატორის ბრძანების გამო",
    "관리자 요청에 의해서 연결을 끝냅니다",
    "закрытие подключения по команде администратора",
    "avslutar anslutning på grund av ett administratörskommando",
    "завершення підключення по команді адміністратора",
    "由于管理员命令中断联接",
    "terminating connection due to idle-in-transaction timeout",
    "Verbindung wird abgebrochen wegen Zeitüberschreitung in inaktiver Transaktion",
    "terminando la conexión debido a que se agotó el tiempo de espera para transacciones abiertas inactivas",
    "arrêt des connexions suite à l'expiration du délai d'inactivité en transaction",
    "la connessione è stata terminata a causa di timeout di inattività durante una transazione",
    "トランザクション中アイドルタイムアウトのため接続を終了します",
    "idle-in-transaction 시간 초과로 연결을 끝냅니다",
    "закрытие подключения из-за тайм-аута простоя в транзакции",
    "terminerar anslutning på grund av idle-in-transaction-timeout",
    "завершення підключення через тайм-аут бездіяльності в транзакції",
    "由于空载事务超时而终止连接",
    "terminating connection due to idle-session timeout",
    "Verbindung wird abgebrochen wegen Zeitüberschreitung in inaktiver Sitzung",
    "terminando la conexión debido a que se agotó el tiempo de espera para sesiones abiertas inactivas",
    "arrêt des connexions suite à l'expiration du délai d'inactivité de la session",
    "terminazione della connessione a causa del timeout della sessione inattiva",
    "アイドルセッションタイムアウトにより接続を終了します",
    "idle-session 시간 초과로 연결을 끝냅니다",
    "закрытие подключения из-за тайм-аута простоя сеанса",
    "stänger anslutning på grund av idle-session-timeout",
    "завершення підключення через тайм-аут неактивного сеансу",
    "terminating connection due to conflict with recovery",
    "Verbindung wird abgebrochen wegen Konflikt mit der Wiederherstellung",
    "terminando la conexión debido a un conflicto con la recuperación",
    "arrêt de la connexion à cause d'un conflit avec la restauration",
    "interruzione della connessione a causa di conflitto con il ripristino",
    "リカバリで競合が発生したため、接続を終了しています",
    "მიერთების შეწყვეტა აღდგენასთან კონფლიქტის გამო",
    "복구 작업 중 충돌로 연결을 끝냅니다",
    "закрытие подключения из-за конфликта с процессом восстановления",
    "avslutar anslutning på grund av konflikt med återställning",
    "завершення підключення через конфлікт з процесом відновлення",
    "由于与恢复操作相冲突而中断连接",
    "terminating connection because of crash of another server process",
    "Verbindung wird abgebrochen wegen Absturz eines anderen Serverprozesses",
    "terminando la conexión debido a una falla en otro proceso servidor",
    "arrêt de la connexion à cause de l'arrêt brutal d'un autre processus serveur",
    "la connessione è stata terminata a causa del crash di un altro processo del server",
    "他のサーバープロセスがクラッシュしたため接続を終了します",
    "다른 서버 프로세스가 손상을 입어 현재 연결을 중지합니다",
    "закрытие подключения из-за краха другого серверного процесса",
    "avbryter anslutning på grund av en krash i en annan serverprocess",
    "завершення підключення через аварійне завершення роботи іншого серверного процесу",
    "中断联接, 因为其它服务器进程崩溃",
    "terminating connection due to unexpected postmaster exit",
    "Verbindung wird abgebrochen wegen unerwartetem Ende des Postmasters",
    "terminando la conexión debido al término inesperado de postmaster",
    "arrêt des connexions suite à un arrêt inattendu du postmaster",
    "la connessione è stata terminata a causa di un'uscita inattesa di postmaster",
    "予期しないpostmasterの終了のため、コネクションを終了します",
    "მიერთების შეწყვეტა postmaster-ის მოულოდნელი გასვლის გამო",
    "postmaster의 예상치 못한 종료로 연결을 종료합니다",
    "закрытие подключения из-за неожиданного завершения главного процесса",
    "avslutar anslutning på grund av att postmaster stängde oväntat ner",
    "завершення підключення через неочікуване закриття головного процесу",
    "由于意外的 postmaster 退出而终止连接",
    "terminating connection due to transaction timeout",
];

/// 26000, 42P05, and 08P01 and 22P03 where another statement is given the binds
const STATEMENT_LOST: &[&str] = &[
    "prepared statement \"%s\" does not exist",
    "vorbereitete Anweisung »%s« existiert nicht",
    "no existe la sentencia preparada «%s»",
    "l'instruction préparée « %s » n'existe pas",
    "l'istruzione preparata \"%s\" non esiste",
    "準備された文\"%s\"は存在しません",
    "მომზადებული ოპერატორი \"%s\" არ არსებობს",
    "\"%s\" 이름의 준비된 명령문(prepared statement) 없음",
    "подготовленный оператор \"%s\" не существует",
    "preparerad sats \"%s\" finns inte",
    "підготовлений оператор \"%s\" не існує",
    "准备好的语句 \"%s\" 不存在",
    "prepared statement \"%s\" already exists",
    "vorbereitete Anweisung »%s« existiert bereits",
    "la sentencia preparada «%s» ya existe",
    "l'instruction préparée « %s » existe déjà",
    "l'istruzione preparata \"%s\" esiste già",
    "準備された文\"%s\"はすでに存在します",
    "მომზადებული ოპერატორი \"%s\" უკვე არსებობს",
    "\"%s\" 이름의 준비된 명령문(prepared statement)이 이미 있습니다",
    "подготовленный оператор \"%s\" уже существует",
    "preparerad sats \"%s\" finns redan",
    "підготовлений оператор \"%s\" вже існує",
    "准备好的语句 \"%s\" 已经存在",
    "bind message supplies %s",
    "Binden-Nachricht enthält %s",
    "el mensaje de «bind» entrega %s",
    "le message bind fournit %s",
    "il messaggio di bind fornisce %s",
    "バインドメッセージは%s",
    "바인드 메시지는 %s",
    "в сообщении Bind передано неверное число параметров (%s",
    "bind-meddelande ger %s",
    "в повідомленні bind передано %s",
    "绑定消息提供了%s",
    "incorrect binary data format in bind parameter %s",
    "falsches Binärdatenformat in Binden-Parameter %s",
    "el formato de datos binarios es incorrecto en el parámetro de «bind» %s",
    "format des données binaires incorrect dans le paramètre bind %s",
    "formato del dato binario errato nel parametro di bind %s",
    "バインドパラメータ%s",
    "바인드 매개 변수 %s",
    "неверный формат двоичных данных в параметре Bind %s",
    "inkorrekt binärdataformat i bind-parameter %s",
    "невірний формат двійкових даних в параметрі bind %s",
    "在绑定参数%s",
    "insufficient data left in message",
    "nicht genug Daten in Message übrig",
    "los datos restantes del mensaje son insuficientes",
    "données insuffisantes laissées dans le message",
    "i dati rimasti nel messaggio non sono sufficienti",
    "メッセージ内に残るデータが不十分です",
    "შეტყობინებაში დარჩენილი მონაცემები არასაკმარისია",
    "부족한 데이터는 메시지 안에 넣어져 있습니다",
    "недостаточно данных осталось в сообщении",
    "otillräckligt med data kvar i meddelande",
    "недостатньо даних залишилось в повідомленні",
    "信息中剩下的数据不够",
];

/// 40P01
const DEADLOCK: &[&str] = &[
    "deadlock detected",
    "Verklemmung (Deadlock) entdeckt",
    "se ha detectado un deadlock",
    "interblocage (deadlock) détecté",
    "rilevato deadlock",
    "デッドロックを検出しました",
    "ნაპოვნია ურთიერთბლოკირება",
    "deadlock 발생했음",
    "обнаружена взаимоблокировка",
    "deadlock upptäckt",
    "виявлено взаємне блокування",
    "检测到死锁",
    "發現死結",
    "terdeteksi 'deadlock'",
    "wykryto zakleszczenie",
    "impasse detectado",
    "çıkmaz (deadlock) durumu saptandı",
];

/// 55P03: `NOWAIT` and `lock_timeout`
const LOCK_TIMEOUT: &[&str] = &[
    "could not obtain lock on row in relation \"%s\"",
    "konnte Sperre für Zeile in Relation »%s« nicht setzen",
    "no se pudo bloquear un candado en la fila de la relación «%s»",
    "n'a pas pu obtenir un verrou sur la relation « %s »",
    "lock di riga nella relazione \"%s\" fallito",
    "リレーション\"%s\"の行ロックを取得できませんでした",
    "ურთიერთობაში \"%s\" მწკრივის დაბლოკვის შეცდომა",
    "\"%s\" 릴레이션의 잠금 정보를 구할 수 없음",
    "не удалось получить блокировку строки в таблице \"%s\"",
    "kunde inte låsa rad i relationen \"%s\"",
    "не вдалося отримати блокування у рядку стосовно \"%s\"",
    "无法获取关系 \"%s\" 中行的锁",
    "無法取得關聯 \"%s\" 中的資料列鎖定",
    "no se pudo bloquear un “lock” en la fila de la relación «%s»",
    "tidak mendapatkan kunci pada baris relasi « %s »",
    "nie można nałożyć blokady na rekord w relacji \"%s\"",
    "não foi possível obter bloqueio na linha da relação \"%s\"",
    "\"%s\" tablosundaki satır için lock alınamadı",
    "无法在关系 \"%s\"中的记录上获得锁",
    "could not obtain lock on relation \"%s\"",
    "konnte Sperre für Relation »%s« nicht setzen",
    "no se pudo bloquear un candado en la relación «%s»",
    "lock della relazione \"%s\" fallito",
    "リレーション\"%s\"のロックを取得できませんでした",
    "ბლოკის მიღების შეცდომა ურთიერთობაზე %s\"",
    "не удалось получить блокировку таблицы \"%s\"",
    "kunde inte ta lås på relationen \"%s\"",
    "не вдалося отримати блокування зв'язку \"%s\"",
    "无法获取关系 \"%s\" 上的锁",
    "無法取得關聯 \"%s\" 的鎖定",
    "no se pudo bloquear un “lock” en la relación «%s»",
    "tidak mendapatkan 'lock' pada relasi« %s »",
    "nie można nałożyć blokady na relację \"%s\"",
    "não foi possível obter bloqueio na relação \"%s\"",
    "\"%s\" tablosu için kilit alınamadı",
    "无法在关系 \"%s\" 上获得锁",
    "canceling statement due to lock timeout",
    "storniere Anfrage wegen Zeitüberschreitung einer Sperre",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de candados (locks)",
    "annulation de la requête à cause du délai écoulé pour l'obtention des verrous",
    "annullamento dell'istruzione a causa di timeout di lock",
    "ロックのタイムアウトのためステートメントをキャンセルしています",
    "გამოსახულება გაუქმდება ბლოკის მოლოდინის ვადის ამოწურვის გამო",
    "잠금 대기 시간 초과로 작업을 취소합니다.",
    "выполнение оператора отменено из-за тайм-аута блокировки",
    "avbryter sats på grund av lås-timeout",
    "виконання оператора скасовано через тайм-аут блокування",
    "由于锁超时，正在取消语句",
    "由於鎖定逾時，正在取消敘述",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de “locks”",
    "pembatalan perintah karena kunci kehabisan waktu tunggu",
    "anulowano polecenie z powodu przekroczenia czasu blokady",
    "cancelando comando por causa do tempo de espera (timeout) do bloqueio",
    "由于锁超时，取消语句操作",
];

/// 57014, of which a request to cancel is not one
const STATEMENT_TIMEOUT: &[&str] = &[
    "canceling statement due to statement timeout",
    "storniere Anfrage wegen Zeitüberschreitung der Anfrage",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de sentencias",
    "annulation de la requête à cause du délai écoulé pour l'exécution de l'instruction",
    "annullamento dell'istruzione a causa di timeout",
    "ステートメントのタイムアウトのためステートメントをキャンセルしています",
    "명령실행시간 초과로 작업을 취소합니다.",
    "выполнение оператора отменено из-за тайм-аута",
    "avbryter sats på grund av sats-timeout",
    "виконання оператора скасовано через тайм-аут",
    "由于语句执行超时，正在取消语句",
    "因為陳述式逾時，正在取消陳述式",
    "pembatalan perintah karena perintah kehabisan waktu tunggu",
    "anulowano polecenie z powodu przekroczonego czasu wykonania",
    "cancelando comando por causa do tempo de espera (timeout) do comando",
    "sorgu zaman aşımına uğradı ve iptal edildi",
    "由于语句执行超时，正在取消查询命令",
];

/// 40001, of which Diesel tells the kind, but an application's error only the text
const SERIALIZATION: &[&str] = &[
    "restart transaction%s", // CockroachDB
    "could not serialize access due to concurrent update",
    "konnte Zugriff nicht serialisieren wegen gleichzeitiger Aktualisierung",
    "no se pudo serializar el acceso debido a un update concurrente",
    "n'a pas pu sérialiser un accès à cause d'une mise à jour en parallèle",
    "serializzazione dell'accesso fallita a causa di modifiche concorrenti",
    "更新が同時に行われたためアクセスの直列化ができませんでした",
    "ერთდროული განახლების გამო წვდომის სერიალიზაცია შეუძლებელია",
    "동시 업데이트 때문에 순차적 액세스가 불가능합니다",
    "не удалось сериализовать доступ из-за параллельного изменения",
    "kunde inte serialisera åtkomst på grund av samtidig uppdatering",
    "не вдалося серіалізувати доступ через паралельне оновлення",
    "由于并发更新，无法串行化访问",
    "因為並行更新，無法序列化存取",
    "tidak bisa men-serialisasi akses karena pembaruan bersama",
    "nie może serializować dostępu z powodu równoczesnej aktualizacji",
    "não foi possível serializar acesso devido a uma atualização concorrente",
    "eşzamanlı güncelleme (update) nedeniyle erişim sıralanamadı (serialize)",
    "由于同步更新而无法串行访问",
    "could not serialize access due to concurrent delete",
    "konnte Zugriff nicht serialisieren wegen gleichzeitigem Löschen",
    "no se pudo serializar el acceso debido a un delete concurrente",
    "n'a pas pu sérialiser un accès à cause d'une suppression en parallèle",
    "impossibile serializzare l'accesso a causa dell'eliminazione simultanea",
    "削除が同時に行われたためアクセスの直列化ができませんでした",
    "ერთდროული წაშლის გამო წვდომის სერიალიზაცია შეუძლებელია",
    "동시 삭제 작업 때문에 순차적 액세스가 불가능합니다",
    "не удалось сериализовать доступ из-за параллельного удаления",
    "kunde inte serialisera åtkomst på grund av samtidig borttagning",
    "не вдалося серіалізувати доступ через паралельне видалення",
    "由于并发删除，无法串行化访问",
    "由於並行刪除，無法序列化存取",
    "não foi possível serializar o acesso devido à exclusão concorrente",
    "eşzamanlı silme (delete) nedeniyle erişim sıralanamadı (serialize)",
    "由于同步删除，无法序列化访问",
    "could not serialize access due to read/write dependencies among transactions",
    "konnte Zugriff nicht serialisieren wegen Lese-/Schreib-Abhängigkeiten zwischen Transaktionen",
    "no se pudo serializar el acceso debido a dependencias read/write entre transacciones",
    "n'a pas pu sérialiser un accès à cause des dépendances de lecture/écriture
parmi les transactions",
    "serializzazione dell'accesso fallita a causa di dipendenze di lettura/scrittura tra le transazioni",
    "トランザクション間で read/write の依存性があったため、アクセスの直列化ができませんでした",
    "트랜잭션간 읽기/쓰기 의존성 때문에 serialize 접근을 할 수 없음",
    "не удалось сериализовать доступ из-за зависимостей чтения/записи между транзакциями",
    "kunde inte serialisera åtkomst på grund av läs/skriv-beroenden bland transaktionerna",
    "не вдалося серіалізувати доступ через залежність читання/запису серед транзакцій",
    "由于事务间的读写依赖，无法串行化访问",
    "由於交易間的讀寫相依，無法序列化存取",
    "tak dapat men-serial-kan akses karena ketergantungan baca/tulis diantara transaksi",
    "nie można serializować dostępu ze względu na zależności odczytu/zapisu między transakcjami",
    "não foi possível serializar acesso devido a dependências de leitura/escrita entre transações",
    "işlemler (transaction) arasındaki okuma/yazma bağımlılıkları nedeniyle erişim serialize edilemiyor",
    "由于多个事务间的读/写依赖而无法串行访问",
];

/// 22003
const OVERFLOW: &[&str] = &[
    "smallint out of range",
    "smallint ist außerhalb des gültigen Bereichs",
    "smallint fuera de rango",
    "smallint en dehors des limites",
    "il valore è fuori dall'intervallo consentito per il tipo smallint",
    "smallintの範囲外です",
    "smallint დიაპაზონს გარეთაა",
    "smallint의 범위를 벗어났습니다.",
    "smallint вне диапазона",
    "smallint utanför sitt intervall",
    "двобайтове ціле поза діапазоном",
    "smallint 超出范围",
    "smallint 超過範圍",
    "'smallint' melebihi jangkauan",
    "poza zakresem smallint",
    "smallint fora do intervalo",
    "smallint sıra dışıdır",
    "integer out of range",
    "integer ist außerhalb des gültigen Bereichs",
    "entero fuera de rango",
    "entier en dehors des limites",
    "intero fuori dall'intervallo",
    "integerの範囲外です",
    "მთელი მნიშვნელობა დიაპაზონს გარეთაა",
    "정수 범위를 벗어남",
    "целое вне диапазона",
    "heltal utanför giltigt intervall",
    "ціле число поза діапазоном",
    "integer 超出范围",
    "integer 超過範圍",
    "nilai integer melebihi jangkauan",
    "liczba całkowita poza zakresem",
    "inteiro fora do intervalo",
    "integer sıra dışıdır",
    "整数超出范围",
    "bigint out of range",
    "bigint ist außerhalb des gültigen Bereichs",
    "bigint fuera de rango",
    "bigint en dehors des limites",
    "bigint fuori dall'intervallo consentito",
    "bigintの範囲外です",
    "bigint დიაპაზონს გარეთაა",
    "bigint의 범위를 벗어났습니다.",
    "bigint вне диапазона",
    "bigint utanför sitt intervall",
    "bigint поза діапазоном",
    "bigint 超出范围",
    "bigint 超過範圍",
    "bigint diluar jangkauan",
    "bigint poza zakresem",
    "bigint fora do intervalo",
    "biginit değeri sıra dışıdır",
    "numeric field overflow",
    "Feldüberlauf bei Typ »numeric«",
    "desbordamiento de campo numeric",
    "champ numérique en dehors des limites",
    "il campo numeric causa un overflow",
    "numericフィールドのオーバーフロー",
    "რიცხვითი ველის გადავსება",
    "수치 필드 오버플로우",
    "переполнение поля numeric",
    "overflow i numeric-fält",
    "надлишок поля numeric",
    "numeric 字段溢出",
    "numeric 欄位溢出",
    "field numerik melebihi jangkauan",
    "przepełnienie pola liczbowego",
    "estouro de campo numeric",
    "numerik alan kapsamını taşımaktadır",
    "数字字段溢出",
    "value out of range: overflow",
    "Wert ist außerhalb des gültigen Bereichs: Überlauf",
    "valor fuera de rango: desbordamiento",
    "valeur en dehors des limites : dépassement",
    "il valore è fuori dall'intervallo consentito: overflow",
    "範囲外の値です: オーバーフロー",
    "მნიშვნელობა დიაპაზონს გარეთაა: გადავსება",
    "값이 범위를 벗어남: 오버플로",
    "значение вне диапазона: переполнение",
    "värde utanför giltigt intervall: overflow",
    "значення поза діапазоном: надлишок",
    "值超出范围: 上溢",
    "值超出範圍: 溢出",
    "nilai melebihi jangkauan : melewati",
    "wartość nie z zakresu: poza zakresem",
    "valor fora do intervalo: estouro (overflow)",
    "değer kapsam dışıdır: overflow",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_tells_the_same() {
        for (message, conflict) in [
            ("deadlock detected", Conflict::Deadlock),
            ("Verklemmung (Deadlock) entdeckt", Conflict::Deadlock),
            ("デッドロックを検出しました", Conflict::Deadlock),
            (
                "could not obtain lock on row in relation \"a\"",
                Conflict::LockTimeout,
            ),
            (
                "konnte Sperre für Zeile in Relation »a« nicht setzen",
                Conflict::LockTimeout,
            ),
            (
                "выполнение оператора отменено из-за тайм-аута блокировки",
                Conflict::LockTimeout,
            ),
            (
                "выполнение оператора отменено из-за тайм-аута",
                Conflict::StatementTimeout,
            ),
        ] {
            assert_eq!(classify(message), Failure::Conflict(conflict), "{message}");
        }
        assert_eq!(classify("ganzzahl"), Failure::Other);
        assert_eq!(classify("bigint fuera de rango"), Failure::Overflow);
    }

    #[test]
    fn a_statement_that_the_server_does_not_hold_is_lost() {
        let guarded = format!("ungültige Eingabesyntax für Typ boolean: »{TAKEN_FOR_ANOTHER}«");
        for message in [
            "prepared statement \"__diesel_stmt_3\" does not exist",
            "vorbereitete Anweisung »s7« existiert bereits",
            "bind message supplies 4 parameters, but prepared statement \"s7\" requires 2",
            "incorrect binary data format in bind parameter 2",
            &guarded,
        ] {
            let lost = Failure::Conflict(Conflict::StatementLost);
            assert_eq!(classify(message), lost, "{message}");
        }
        let quoted = "invalid input: \"prepared statement \"a\" does not exist";
        assert_eq!(classify(quoted), Failure::Other);
    }

    #[test]
    fn a_connection_that_is_terminated_is_lost() {
        for message in [
            "terminating connection due to administrator command",
            "terminating connection due to idle-in-transaction timeout",
            "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators",
            "закрытие подключения по команде администратора",
        ] {
            assert_eq!(classify(message), Failure::ConnectionLost, "{message}");
        }
        let quoted =
            "invalid input syntax: \"terminating connection due to administrator command\"";
        assert_eq!(classify(quoted), Failure::Other);
    }

    #[test]
    fn a_cancel_request_is_no_conflict() {
        assert_eq!(
            classify("canceling statement due to user request"),
            Failure::Other
        );
    }
}
