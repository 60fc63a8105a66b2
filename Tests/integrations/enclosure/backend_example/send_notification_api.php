<?php
// A chat controller in the shape of Enclosure's: its functions, and the variables that the page's edits read. In double braces are
// the edits of docs/integrations/enclosure.md.

public function send_notification_api() {
    $requestData = json_decode(file_get_contents("php://input"), true);
    $deviceToken = $requestData['deviceToken'] ?? null;
{{send_notification_api.php:55-60}}

    $modelId = $requestData['modelId'] ?? '';
    $user_name = $requestData['user_name'] ?? '';
    $photo = $requestData['photo'] ?? '';
    $deviceType = $requestData['deviceType'] ?? '';
    $receiverKey = $requestData['receiverKey'] ?? '';
    $receiverUid = $requestData['receiverUid'] ?? '';
    $receiverDeviceType = $requestData['receiverDeviceType'] ?? '';
    if ($receiverDeviceType === '' && $receiverUid !== '') {
        $receiverDeviceType = $this->getUserDeviceTypeByUid($receiverUid);
    }
{{send_notification_api.php:133-374}}
}
