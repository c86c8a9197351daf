<?php
// Records each complete request as a line of JSON, and answers with its target.
function utf8_of(string $text): string
{
    $out = '';
    foreach (str_split($text) as $byte) {
        $code = ord($byte);
        $out .= $code < 0x80 ? $byte : chr(0xC0 | ($code >> 6)) . chr(0x80 | ($code & 0x3F));
    }
    return $out;
}
$target = $_SERVER['REQUEST_URI'];
$fields = [];
foreach (getallheaders() as $name => $value) {
    $fields[] = utf8_of((string) $name);
    $fields[] = utf8_of($value);
}
$record = [
    'method' => $_SERVER['REQUEST_METHOD'],
    'target' => utf8_of($target),
    'host' => utf8_of($_SERVER['HTTP_HOST'] ?? ''),
    'body' => bin2hex(file_get_contents('php://input')),
    'fields' => $fields,
];
file_put_contents(__DIR__ . '/requests', json_encode($record) . "\n", FILE_APPEND);
header('Content-Type: text/plain');
header('Content-Length: ' . strlen($target));
echo $target;
return true;
