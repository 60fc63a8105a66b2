<?php
// The function of Enclosure's chat controller that asks the database.

public function getUserDeviceTypeByUid($uid) {
    $found = $this->db->prepare("SELECT device_type FROM users WHERE uid = ?");
    $found->execute([$uid]);
    return $found->fetch()['device_type'] ?? '';
}
