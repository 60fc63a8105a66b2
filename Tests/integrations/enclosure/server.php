<?php
// A server in the shape of Enclosure's: of CodeIgniter what its controllers use, and tables from a file. /CONTROLLER/FUNCTION calls a
// function. Whatever PHP warns of, such as a variable that is not set, ends the request with 500.

set_error_handler(function ($level, $text, $file, $line) {
    throw new ErrorException($text, 0, $level, $file, $line);
});

class Api_Model
{
    public function getData($table, array $where)
    {
        foreach (json_decode(file_get_contents(getenv('TABLES')), true)[$table] as $row) {
            if (array_intersect_assoc($where, $row) == $where) {
                return $row;
            }
        }
        return null;
    }
}

/** Of PDO what finds the device type of a user. */
class Database
{
    private $row;

    public function prepare($query)
    {
        return $this;
    }

    public function execute(array $values)
    {
        $this->row = (new Api_Model())->getData('users', ['uid' => $values[0]]);
    }

    public function fetch($mode = null)
    {
        return $this->row ?? false;
    }
}

class Input
{
    public function post($name)
    {
        return $_POST[$name] ?? null;
    }
}

class Loader
{
    public function helper($name)
    {
        require_once __DIR__ . "/{$name}_helper.php";
    }
}

class CI_Controller
{
    public $db, $Api_Model, $input, $load;

    public function __construct()
    {
        [$this->db, $this->Api_Model, $this->input, $this->load] = [new Database(), new Api_Model(), new Input(), new Loader()];
        $this->load->helper('push_gateway');
    }
}

function base_url($path)
{
    return "https://enclosure.example.com/$path";
}

[, $class, $function] = explode('/', $_SERVER['REQUEST_URI']);
require __DIR__ . "/$class.php";
(new $class())->$function();
