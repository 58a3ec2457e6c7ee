//! The texts by which a standby refuses a transaction, from the same message catalogues.

/// 0A000 of a standby. Diesel has a kind for its 25006.
pub(super) const NODE_NOT_READY: &[&str] = &[
    "cannot use serializable mode in a hot standby",
    "kann serialisierbaren Modus nicht in einem Hot Standby verwenden",
    "no se puede utilizar el modo serializable en un hot standby",
    "ne peut pas utiliser le mode sérialisable sur un serveur en « Hot Standby »",
    "non è possibile usare la modalità SERIALIZABLE in un hot standby",
    "ホットスタンバイ中はシリアライズモードを使用できません",
    "ცხელი მოლოდინში სერიალიზებადი რეჟიმის გამოყენება შეუძლებელია",
    "읽기 전용 보조 서버 상태에서는 serializable 모드를 사용할 수 없음",
    "использовать сериализуемый режим в горячем резерве нельзя",
    "kan inte använda serializable-läge i hot standby",
    "використовувати серіалізований режим в hot standby не можна",
    "热备过程中无法使用可串行化模式",
    "cannot set transaction read-write mode during recovery",
    "kann den Read/Write-Modus einer Transaktion nicht während der Wiederherstellung setzen",
    "no se puede poner en modo de escritura durante la recuperación",
    "ne peut pas initialiser le mode lecture-écriture des transactions lors de la\nrestauration",
    "non è possibile impostare la transazione in lettura/scrittura durante il ripristino",
    "リカバリ中にはトランザクションを読み書きモードに設定できません",
    "აღდგენისას ტრანზაქციის ჩაწერა-წაკითხვის რეჟიმის დაყენება შეუძლებელია",
    "복구 작업 중에는 트랜잭션을 읽기/쓰기 모드로 설정할 수 없음",
    "нельзя установить режим транзакции \"чтение-запись\" в процессе восстановления",
    "kan inte sätta transaktionens läs-skriv-läge vid återställning",
    "не можна встановити режим транзакції \"читання-запис\" під час відновлення",
    "在恢复操作期间不能设置事务的读写模式",
];
